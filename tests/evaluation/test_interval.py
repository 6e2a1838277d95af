"""Intervals of means: Wilson's for shares, the bootstrap's for differences."""

import pytest

from kcard.evaluation.metrics import interval
from kcard.evaluation.records import Mean


def test_the_interval_of_a_share_is_wilsons() -> None:
    """p = 7/10: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n) with z = 1.95996."""
    low, high = interval([1.0] * 7 + [0.0] * 3)
    assert low == pytest.approx(0.39677, abs=1e-4)
    assert high == pytest.approx(0.89221, abs=1e-4)


@pytest.mark.parametrize("count", [1, 10, 200])
def test_where_all_are_right_or_all_wrong_it_still_has_a_width(count: int) -> None:
    low, high = interval([1.0] * count)
    assert (round(low, 6), high) == (round(count / (count + 1.959964**2), 6), 1.0)
    assert interval([0.0] * count) == pytest.approx((0.0, 1 - low))


def test_more_of_the_same_narrow_it() -> None:
    lows = [interval([1.0] * count)[0] for count in (1, 5, 25, 125)]
    assert lows == sorted(lows)


@pytest.mark.parametrize("values", [[0.2, 0.4, 0.9], [0.5], [1.0, 0.0], [0.0] * 5, [1.0] * 5])
def test_it_holds_the_mean_and_stays_within_what_a_share_can_be(values: list[float]) -> None:
    low, high = interval(values)
    assert 0 <= low <= sum(values) / len(values) <= high <= 1
    assert low < high


def test_a_higher_level_is_a_wider_interval() -> None:
    values = [1.0] * 7 + [0.0] * 3
    (low, high), (lower, higher) = interval(values), interval(values, level=0.99)
    assert lower < low < high < higher


@pytest.mark.parametrize("count", [3, 30])
def test_differences_that_are_all_the_same_have_a_width_too(count: int) -> None:
    low, high = interval([-1.0] * count, paired=True)
    assert low == -1.0
    assert -1.0 < high < 1.0


def test_differences_may_be_on_either_side_of_nothing() -> None:
    low, high = interval([1.0, -1.0, 0.0, 1.0, -1.0, 0.0] * 5, paired=True)
    assert -1 <= low < 0 < high <= 1


def test_a_mean_is_shown_with_its_interval() -> None:
    assert str(Mean.of([1.0] * 10)) == "1.00 [0.72, 1.00]"
    assert Mean.of([]) is None
