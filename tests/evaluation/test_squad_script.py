"""Exact match and F1 are those of SQuAD's official script, whose rules an oracle here follows step by step."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcard.evaluation.metrics import exact_match, f1, normalise

WORDS = st.sampled_from(
    ["the", "a", "An", "Rhine", "rhine,", "North", "Sea.", "1,000", "U.S.", "theatre", "Beyoncé", "-"]
)
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)


def plain(text: str) -> list[str]:
    """Small letters; every ASCII punctuation mark gone; the words a, an, the gone; split at white space."""
    letters = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return [word for word in letters.split() if word not in {"a", "an", "the"}]


def oracle_f1(prediction: str, answer: str) -> float:
    """Words in common, each as often as it is in both; where one side has no words, 1 if neither has, else 0."""
    predicted, right = plain(prediction), plain(answer)
    if not predicted or not right:
        return float(predicted == right)
    rest, common = list(right), 0
    for word in predicted:
        if word in rest:
            rest.remove(word)
            common += 1
    precision, recall = common / len(predicted), common / len(right)
    return 2 * precision * recall / (precision + recall) if common else 0.0


@given(prediction=TEXTS, answers=st.lists(TEXTS, min_size=1, max_size=3))
def test_exact_match_and_f1_follow_the_official_rules(prediction: str, answers: list[str]) -> None:
    assert normalise(prediction).split() == plain(prediction)
    assert exact_match(prediction, answers) == max(float(plain(prediction) == plain(a)) for a in answers)
    assert f1(prediction, answers) == pytest.approx(max(oracle_f1(prediction, a) for a in answers))


@pytest.mark.parametrize(
    ("prediction", "answer", "em", "score"),
    [
        ("the Denver Broncos.", "Denver Broncos", 1.0, 1.0),
        ("Denver Broncos won", "Denver Broncos", 0.0, 0.8),
        ("Broncos", "Denver Broncos", 0.0, 2 / 3),
        ("Carolina", "Denver Broncos", 0.0, 0.0),
        ("U.S.", "us", 1.0, 1.0),
        ("", "", 1.0, 1.0),
        ("the", "", 1.0, 1.0),
        ("", "Denver", 0.0, 0.0),
    ],
)
def test_known_pairs(prediction: str, answer: str, em: float, score: float) -> None:
    assert exact_match(prediction, [answer]) == em
    assert f1(prediction, [answer]) == pytest.approx(score)
