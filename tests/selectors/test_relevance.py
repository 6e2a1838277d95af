"""Relevance: cosines of a real encoder, numbers minded, and the top k with ties in the given order."""

import numpy as np
import pytest

from kcard.selectors.relevance import Cosine, MiniLMRelevance, top
from kcard.text import agreement, numbers

QUESTION = "Who won the senate race in Oregon?"
TEXTS = [
    "The Nile flows through Egypt.",
    "Ron Wyden was re-elected as senator for Oregon.",
    "Oregon is a state on the west coast.",
]


def test_the_text_that_answers_is_most_relevant() -> None:
    scores = MiniLMRelevance().scores(QUESTION, TEXTS)
    assert scores.shape == (3,)
    assert top(scores, 3) == [1, 2, 0]
    assert np.all(np.abs(scores) <= 1)
    np.testing.assert_array_equal(scores, Cosine().scores(QUESTION, TEXTS))  # the question has no number


def test_a_text_scores_the_same_in_any_company() -> None:
    alone = [float(MiniLMRelevance().scores(QUESTION, [text])[0]) for text in TEXTS]
    together = MiniLMRelevance().scores(QUESTION, [*TEXTS, "word " * 200, TEXTS[0]])
    assert together[:3] == pytest.approx(alone, abs=1e-4)
    assert together[4] == together[0]
    assert MiniLMRelevance().scores(QUESTION, []).shape == (0,)


def test_the_right_year_outweighs_the_nearer_wording() -> None:
    question = "Who won the senate race in Oregon in 2022?"
    texts = [
        "In 2020 Jeff Merkley won the senate race in Oregon.",
        "Oregon sent Ron Wyden to the Senate in the midterms of 2022.",
    ]
    assert top(Cosine().scores(question, texts), 1) == [0]
    assert top(MiniLMRelevance().scores(question, texts), 1) == [1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the 5th district in 2022", 1.0),
        ("the 5th district in 2020", 0.75),
        ("the 4th district in 2020", 0.5),
        ("the 5th district", 0.95),
        ("5 districts", 0.9),
        ("none at all", 0.9),
        ("", 0.9),
    ],
)
def test_another_number_of_the_same_form_counts_more_than_none(text: str, expected: float) -> None:
    assert agreement("Who won the 5th district in 2022?", text) == pytest.approx(expected)


def test_numbers_are_read_without_the_marks_around_them() -> None:
    assert numbers("In 2022, the 5TH of 1,200.") == {"2022", "5th", "1,200"}


@pytest.mark.parametrize(
    ("scores", "k", "floor", "best"),
    [
        ([0.5, 0.8, 0.61, 0.59], 4, 0.75, [1, 2]),
        ([0.5, 0.8, 0.61, 0.59], 4, 0.0, [1, 2, 3, 0]),
        ([0.5, 0.8, 0.61, 0.59], 1, 0.75, [1]),
        ([-0.1, -0.2], 2, 0.75, [0, 1]),
        ([], 2, 0.75, []),
        ([0.5, 0.9, 0.5, 0.9, 0.5], 3, 0.0, [1, 3, 0]),
        ([0.5, 0.9, 0.5, 0.9, 0.5], 9, 0.0, [1, 3, 0, 2, 4]),
        ([0.5, 0.9, 0.5, 0.9, 0.5], 0, 0.0, []),
    ],
)
def test_the_best_come_first_of_equal_ones_the_earlier_and_none_far_below_the_best(
    scores: list[float], k: int, floor: float, best: list[int]
) -> None:
    assert top(np.array(scores, dtype=np.float32), k, floor=floor) == best
