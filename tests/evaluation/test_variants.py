"""Analyses of settings that vary one setting: what they count, and which runs they are for."""

from collections.abc import Mapping

import pytest

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis, Analyst
from kcard.evaluation.analyses.variants import added_cards, document_counts, patched_cards, selector_ablation
from kcard.evaluation.plots import Curves, Heat, Intervals
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.results import EvalResult
from tests.evaluation.made_up_runs import made_up_result

METRICS = {"midterm": "em"}
GROUPS = {"1": "house", "2": "house", "3": "senate", "4": "senate"}


def results(right: Mapping[str, str]) -> list[EvalResult]:
    """Four questions under each setting; `right`: which of them it answers."""
    return [
        made_up_result(id_, setting, id_ in answered, group=group)
        for setting, answered in right.items()
        for id_, group in GROUPS.items()
    ]


def means(analysis: Analysis, column: str) -> list[float | None]:
    at = analysis.columns.index(column)
    return [cell.mean if isinstance(cell := row[at], Mean) else None for row in analysis.rows]


def test_the_gain_of_each_card_is_over_the_llm_alone_and_by_group() -> None:
    analysis = patched_cards(
        results({"direct": "1", "top-down+cards=house": "12", "top-down+cards=senate": "134"}), METRICS
    )
    assert [row[2:4] for row in analysis.rows] == [
        ("house", "all"),
        ("house", "house"),
        ("house", "senate"),
        ("senate", "all"),
        ("senate", "house"),
        ("senate", "senate"),
    ]
    assert means(analysis, "score") == [0.5, 1.0, 0.0, 0.75, 0.5, 1.0]
    assert means(analysis, "gain") == [0.25, 0.5, 0.0, 0.5, 0.0, 1.0]
    bars, heat = analysis.charts
    assert isinstance(bars, Intervals)
    assert isinstance(heat, Heat)
    assert heat.columns == ("no card", "house", "senate")
    assert heat.values == ((0.5, 1.0, 0.5), (0.0, 0.0, 1.0))


def test_the_change_of_each_added_card_is_over_the_pool_before() -> None:
    pools = {
        "direct": "",
        "bottom-up+cards=a": "123",
        "bottom-up+cards=a+cards=b": "12",
        "bottom-up+cards=a+cards=b+cards=c": "1234",
    }
    analysis = added_cards(results(pools), METRICS)
    assert [row[2:4] for row in analysis.rows] == [(1, "a"), (2, "b"), (3, "c")]
    assert means(analysis, "change") == [None, -0.25, 0.5]
    (chart,) = analysis.charts
    assert isinstance(chart, Curves)
    assert chart.ticks == ("a", "+ b", "+ c")


def test_the_change_without_a_selector_is_over_all_three() -> None:
    parts = {
        "direct": "",
        "bottom-up": "1234",
        "bottom-up+relevance=random": "123",
        "bottom-up+relevance=random+pruner=none+checker=none": "1",
    }
    analysis = selector_ablation(results(parts), METRICS)
    assert [row[2] for row in analysis.rows] == ["all three", "without relevance", "none"]
    assert means(analysis, "change") == [None, -0.25, -0.75]


def test_scores_are_drawn_against_each_number_of_documents() -> None:
    counts = {"direct": "", "bottom-up+n1=5": "12", "bottom-up+n1=1": "1", "bottom-up+n2=3": "123"}
    analysis = document_counts(results(counts), METRICS)
    assert [row[2:4] for row in analysis.rows] == [("n1", 5), ("n1", 1), ("n2", 3)]
    (chart,) = analysis.charts
    assert isinstance(chart, Curves)
    assert [line.x for line in chart.series] == [(1, 5), (3,)]


@pytest.mark.parametrize("analyst", [patched_cards, added_cards, selector_ablation, document_counts])
def test_a_run_of_other_settings_is_refused_with_the_command_that_would_do(analyst: Analyst) -> None:
    with pytest.raises(UsageError, match="kcard eval --analysis"):
        analyst(results({"direct": "1", "bottom-up": "12"}), METRICS)
