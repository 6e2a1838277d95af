"""Metrics."""

import math
import string
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn

from kcard.evaluation.metrics import (
    accuracy,
    balanced_accuracy,
    balanced_interval,
    bootstrap_interval,
    compare_scores,
    count_by_range,
    draw_histogram,
    exact_match,
    f1,
    interval,
    macro_f1,
    mcnemar,
    normalise,
    substring,
)
from kcard.evaluation.records import Mean


@pytest.mark.parametrize(
    ("text", "answers", "is_found"),
    [
        ("It was won by Ron  WYDEN, a Democrat.", ["Ron Wyden"], True),
        ("It was the 7th district.", ["8th", "7th"], True),
        ("It was in 2010.", ["10"], False),
        ("Wyden, Ron", ["Ron Wyden"], False),
        ("anything", [], False),
        ("The largest of Saturn's satellites is Titan.", ["Saturn"], True),
        ("Saturn’s rings", ["Saturn"], True),
        ("It is McDonald's.", ["McDonald's"], True),
        ("It is Saturns.", ["Saturn"], False),
        ("Blood group: A", ["A"], True),  # normalisation takes it for an article
        ("Blood group: 0", ["A"], False),
    ],
)
def test_an_answer_is_found_as_whole_words_possessives_included(
    text: str, answers: list[str], is_found: bool
) -> None:
    assert substring(text, answers) == is_found


def test_nothing_has_no_accuracy_and_no_interval() -> None:
    nothing = (balanced_accuracy([], []), macro_f1([], []), *interval([]), *bootstrap_interval(np.mean, []))
    assert all(map(math.isnan, nothing))


def test_scores_are_counted_by_equal_ranges_and_one_belongs_to_the_last() -> None:
    assert count_by_range([0.0, 0.09, 0.1, 0.55, 0.99, 1.0], bins=10) == [2, 1, 0, 0, 0, 1, 0, 0, 0, 2]


def test_a_histogram_shows_the_fullest_range_highest_and_no_filled_one_as_empty() -> None:
    assert draw_histogram([0.95] * 100 + [0.05]) == "▂▁▁▁▁▁▁▁▁█"
    assert draw_histogram([0.1, 0.3, 0.3, 0.9, 0.9, 0.9, 0.9], bins=4) == "▃▅▁█"
    assert draw_histogram([]) == ""


# Accuracy of choices, balanced accuracy and macro F1, against scikit-learn.

CLASSES = ("satire", "hoax", "propaganda", "trusted")


def drawn(seed: int, count: int = 200) -> tuple[list[str], list[str]]:
    """Predictions, some of which are no class, and the right classes, of different sizes."""
    random = np.random.default_rng(seed)
    actual = random.choice(CLASSES, count, p=[0.6, 0.2, 0.15, 0.05])
    guess = random.choice([*CLASSES, ""], count)
    return np.where(random.random(count) < 0.6, actual, guess).tolist(), actual.tolist()


def test_a_choice_is_right_if_it_is_one_of_the_right_letters() -> None:
    assert accuracy("B", ("B",)) == 1.0
    assert accuracy("C", ("B", "C")) == 1.0
    assert accuracy("A", ("B",)) == 0.0
    assert accuracy("", ("B",)) == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_balanced_accuracy_and_macro_f1_are_those_of_scikit_learn(seed: int) -> None:
    predicted, actual = drawn(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "" is predicted but is no class
        expected = sklearn.balanced_accuracy_score(actual, predicted)
    assert balanced_accuracy(predicted, actual) == pytest.approx(expected)
    expected = sklearn.f1_score(actual, predicted, labels=CLASSES, average="macro", zero_division=0)
    assert macro_f1(predicted, actual) == pytest.approx(expected)
    few = (["hoax", "hoax"], ["hoax", "satire"])  # the other classes have an F1 of zero
    expected = sklearn.f1_score(few[1], few[0], labels=CLASSES, average="macro", zero_division=0)
    assert macro_f1(*few, CLASSES) == pytest.approx(expected)


# Intervals of means: Wilson's for shares, the bootstrap's for differences.


def test_the_interval_of_a_share_is_wilsons() -> None:
    """p = 7/10: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n) with z = 1.95996."""
    low, high = interval([1.0] * 7 + [0.0] * 3)
    assert low == pytest.approx(0.39677, abs=1e-4)
    assert high == pytest.approx(0.89221, abs=1e-4)


@pytest.mark.parametrize("values", [[0.2, 0.4, 0.9], [0.5], [1.0, 0.0], [0.0] * 5, [1.0] * 5])
def test_it_holds_the_mean_and_stays_within_what_a_share_can_be(values: list[float]) -> None:
    low, high = interval(values)
    assert 0 <= low <= sum(values) / len(values) <= high <= 1
    assert low < high


@pytest.mark.parametrize("count", [3, 30])
def test_differences_that_are_all_the_same_have_a_width_too(count: int) -> None:
    low, high = interval([-1.0] * count, paired=True)
    assert low == -1.0
    assert -1.0 < high < 1.0


def test_a_mean_is_shown_with_its_interval() -> None:
    assert str(Mean.of([1.0] * 10)) == "1.00 [0.72, 1.00]"
    assert Mean.of([]) is None


# Two settings on the same questions: McNemar's test, the permutation test, and intervals by the bootstrap.


@pytest.mark.parametrize(
    ("better", "worse", "p"),
    [
        (121, 59, 0.000004),
        (70, 59, 0.378688),
        (80, 59, 0.089452),
        (30, 60, 0.00206),
        (10, 30, 0.002221),
        (10, 10, 1.0),
    ],
)
def test_mcnemars_p_is_the_published_one(better: int, worse: int, p: float) -> None:
    """The values that statsmodels checks its exact test by, computed with VassarStats."""
    assert mcnemar(better, worse) == pytest.approx(p, abs=1e-6)


def test_right_and_wrong_are_compared_by_mcnemar() -> None:
    comparison = compare_scores([1.0] * 12 + [0.0] * 3 + [1.0] * 5, [0.0] * 12 + [1.0] * 3 + [1.0] * 5)
    assert (comparison.n, comparison.better, comparison.worse, comparison.test) == (20, 12, 3, "mcnemar")
    assert comparison.difference == pytest.approx(9 / 20)
    assert comparison.low < 9 / 20 < comparison.high
    assert comparison.p == mcnemar(12, 3)


def test_graded_scores_are_compared_by_permutation() -> None:
    random = np.random.default_rng(0)
    second = random.random(40)
    first = np.clip(second + random.normal(0.04, 0.1, 40), 0, 1)
    comparison = compare_scores(first.tolist(), second.tolist())
    expected = stats.permutation_test(
        (first, second), lambda a, b: (a - b).mean(), permutation_type="samples", n_resamples=9999, rng=random
    )
    assert comparison.test == "permutation"
    assert comparison.p == pytest.approx(expected.pvalue, abs=0.02)


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [1.0, 0.0])])
def test_scores_of_other_questions_are_not_compared(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match="expected both of the same questions"):
        compare_scores(first, second)


def test_the_bootstrap_of_an_aggregate_is_that_of_scipy() -> None:
    random = np.random.default_rng(3)
    actual = random.choice(["x", "y"], 150, p=[0.8, 0.2])
    predicted = np.where(random.random(150) < 0.7, actual, "x")
    expected = stats.bootstrap(
        (predicted, actual), balanced_accuracy, paired=True, vectorized=False,
        method="percentile", n_resamples=2000, rng=4,
    ).confidence_interval  # fmt: skip
    bounds = bootstrap_interval(balanced_accuracy, predicted, actual, resamples=2000)
    assert bounds == pytest.approx(tuple(expected), abs=0.012)
    assert bounds[0] < balanced_accuracy(predicted, actual) < bounds[1]


def test_the_interval_of_balanced_accuracy_covers_it_and_has_a_width_at_the_ends() -> None:
    actual = ["a", "b"] * 20
    assert balanced_interval(["?"] * 40, actual) == pytest.approx((0.0, 0.1140), abs=1e-3)
    assert balanced_interval(actual, actual) == pytest.approx((0.8860, 1.0), abs=1e-3)
    assert all(map(math.isnan, balanced_interval([], [])))
    # Of 1000 samples, 95 % cover the truth: recalls of .9 and .6 of 30 and 60 items.
    random, covered = np.random.default_rng(0), 0
    true = ["a"] * 30 + ["b"] * 60
    for _ in range(1000):
        right = np.concatenate([random.random(30) < 0.9, random.random(60) < 0.6])
        low, high = balanced_interval([t if r else "?" for t, r in zip(true, right, strict=True)], true)
        covered += low <= 0.75 <= high
    assert 0.93 < covered / 1000 < 0.98


# Exact match and F1 are those of SQuAD's official script, whose rules an oracle here follows step by step.

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
