import math

import pytest

from kcard.evaluation.browse import plot
from kcard.evaluation.metrics import counts, exact_match, f1, histogram, interval, normalise, substring


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The  Beatles!", "beatles"),
        ("a U.S. senator, an heir", "us senator heir"),
        ("Theatre", "theatre"),
        ("Beyoncé", "beyoncé"),
    ],
)
def test_texts_are_normalised_as_squad_does(text: str, plain: str) -> None:
    assert normalise(text) == plain


def test_exact_match_takes_any_accepted_answer() -> None:
    assert exact_match("the Rhine.", ["Danube", "Rhine"]) == 1.0
    assert exact_match("Rhine river", ["Danube", "Rhine"]) == 0.0
    assert exact_match("Rhine", []) == 0.0


def test_f1_is_over_words_and_takes_the_best_answer() -> None:
    assert f1("Ron Wyden of Oregon", ["Wyden", "Ron Wyden"]) == pytest.approx(2 * 2 / (4 + 2))
    assert f1("Ron Ron", ["Ron"]) == pytest.approx(2 * 1 / 3)
    assert f1("Kate Brown", ["Ron Wyden"]) == 0.0
    assert f1("", ["Ron Wyden"]) == 0.0
    assert f1("the", ["a"]) == 1.0


def test_an_answer_is_found_as_whole_words_only() -> None:
    assert substring("It was won by Ron  WYDEN, a Democrat.", ["Ron Wyden"])
    assert substring("It was the 7th district.", ["8th", "7th"])
    assert not substring("It was in 2010.", ["10"])
    assert not substring("Wyden, Ron", ["Ron Wyden"])
    assert not substring("anything", [])


def test_an_answer_is_found_in_its_possessive() -> None:
    assert substring("The largest of Saturn's satellites is Titan.", ["Saturn"])
    assert substring("Saturn’s rings", ["Saturn"])
    assert substring("It is McDonald's.", ["McDonald's"])
    assert not substring("It is Saturns.", ["Saturn"])


def test_an_answer_that_normalisation_empties_is_sought_as_it_is() -> None:
    assert substring("Blood group: A", ["A"])
    assert not substring("Blood group: 0", ["A"])


def test_the_interval_of_a_mean_holds_it_and_narrows_with_more_values() -> None:
    few, many = [1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0] * 100
    for values in (few, many):
        low, high = interval(values)
        assert low < 0.75 < high
    assert interval(many)[1] - interval(many)[0] < (interval(few)[1] - interval(few)[0]) / 4
    # The normal approximation: 1.96 sqrt(p (1 - p) / n).
    assert interval(many)[0] == pytest.approx(0.75 - 1.96 * (0.75 * 0.25 / 400) ** 0.5, abs=0.01)


def test_the_interval_is_the_same_each_time_and_unknown_for_nothing() -> None:
    assert interval([0.1, 0.7, 0.4]) == interval([0.1, 0.7, 0.4])
    assert all(math.isnan(end) for end in interval([]))
    assert interval([0.5])[0] < 0.5 < interval([0.5])[1]


def test_scores_are_counted_by_equal_ranges_and_one_belongs_to_the_last() -> None:
    assert counts([0.0, 0.09, 0.1, 0.55, 0.99, 1.0], bins=10) == [2, 1, 0, 0, 0, 1, 0, 0, 0, 2]


def test_a_histogram_shows_the_fullest_range_highest_and_no_filled_one_as_empty() -> None:
    assert histogram([0.95] * 100 + [0.05]) == "▂▁▁▁▁▁▁▁▁█"
    assert histogram([0.1, 0.3, 0.3, 0.9, 0.9, 0.9, 0.9], bins=4) == "▃▅▁█"
    assert histogram([]) == ""


def test_a_plot_has_a_bar_for_each_filled_range_within_its_bounds() -> None:
    histogram_plot = plot([0.0, 0.52, 0.52, 1.0], bins=10, width=200, height=50)
    assert [bar.count for bar in histogram_plot.bars] == [1, 2, 1]
    assert [bar.low for bar in histogram_plot.bars] == [0.0, 0.5, 0.9]
    assert max(bar.height for bar in histogram_plot.bars) == 50
    assert all(
        bar.x >= 0 and bar.x + bar.width <= 200 and bar.y + bar.height <= 50.01 for bar in histogram_plot.bars
    )
    assert histogram_plot.mean_x == pytest.approx(0.51 * 200)
    assert plot([]).bars == ()
    assert plot([]).mean_x is None
