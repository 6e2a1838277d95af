"""Two settings on the same questions: McNemar's test, the permutation test, and intervals by the bootstrap."""

import math

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from kcard.evaluation.metrics import balanced_accuracy, bootstrap_interval, compare_scores, interval, mcnemar


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


@pytest.mark.parametrize(("better", "worse"), [(0, 0), (1, 0), (3, 9), (500, 430), (2500, 2501)])
def test_mcnemars_test_is_the_binomial_test_of_the_questions_that_differ(better: int, worse: int) -> None:
    expected = stats.binomtest(better, better + worse).pvalue if better + worse else 1.0
    assert mcnemar(better, worse) == mcnemar(worse, better) == pytest.approx(expected)


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


def test_equal_settings_do_not_differ() -> None:
    comparison = compare_scores([1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    assert (comparison.difference, comparison.better, comparison.worse, comparison.p) == (0.0, 0, 0, 1.0)


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [1.0, 0.0])])
def test_scores_of_other_questions_are_not_compared(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match="expected both of the same questions"):
        compare_scores(first, second)


def test_the_bootstrap_of_a_mean_is_that_of_scipy() -> None:
    values = np.random.default_rng(1).random(120)
    expected = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=5000, rng=2
    ).confidence_interval
    assert bootstrap_interval(np.mean, values, resamples=5000) == pytest.approx(tuple(expected), abs=0.005)


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


def test_an_interval_of_differences_is_the_paired_bootstrap_and_the_same_each_time() -> None:
    differences = np.random.default_rng(5).choice([-1.0, 0.0, 1.0], 80)
    bounds = interval(differences.tolist(), paired=True)
    assert bounds == interval(differences.tolist(), paired=True) == bootstrap_interval(np.mean, differences)


def test_no_items_have_no_interval() -> None:
    assert all(map(math.isnan, bootstrap_interval(np.mean, [])))
