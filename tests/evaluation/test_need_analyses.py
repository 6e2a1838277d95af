"""What the LLM says of its needs, against correctness and from wording to wording: counts checked by hand."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kcard.evaluation.analyses.answers import yes_no
from kcard.evaluation.analyses.variants import wordings
from kcard.evaluation.plots import Heat, Intervals
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.results import EvalResult, RecordedCall
from kcard.llms.prompts import render
from kcard.types import Example, Request, Turn
from tests.evaluation.made_up_runs import made_up_result

METRICS = {"midterm": "em"}


def result(
    number: int, setting: str, right: bool, gate: str, fired: bool, calls: Sequence[RecordedCall] = ()
) -> EvalResult:
    trace = {"gate": {"name": gate, "score": 0.5, "fired": fired}}
    return made_up_result(str(number), setting, right, calls=tuple(calls), trace=trace)


def need(template: int, reply: str, turns: tuple[Turn, ...] = ()) -> RecordedCall:
    shown = (Example("need", "2 + 2?", "No"),)
    return RecordedCall(
        "need", render(Request("need", "Who won?", (), shown, turns=turns, template=template)), reply
    )


DIRECT = [result(i, "direct", i in (1, 2), "never", False) for i in range(1, 5)]
TOP_DOWN = [
    result(1, "top-down", True, "self-ask", True),
    result(2, "top-down", True, "self-ask", False),
    result(3, "top-down", False, "self-ask", False),
    result(4, "top-down", True, "self-ask", True),
]


def test_yes_and_no_are_counted_against_correctness() -> None:
    analysis = yes_no([*DIRECT, *TOP_DOWN], METRICS)
    ((task, setting, gate, *counts, over, under),) = analysis.rows
    assert (task, setting, gate) == ("midterm", "top-down", "self-ask")
    assert counts == [4, 2, 0, 1, 1]
    assert isinstance(over, Mean)
    assert isinstance(under, Mean)
    assert (over.mean, under.mean) == (0.25, 0.25)
    (heat,) = analysis.charts
    assert isinstance(heat, Heat)
    assert heat.values == ((0.5, 0.0), (0.25, 0.25))


def test_without_direct_answers_over_asking_is_unknown_and_failures_are_left_out() -> None:
    failed = replace(TOP_DOWN[0], error="timed out", trace={})
    analysis = yes_no([failed, *TOP_DOWN[1:]], METRICS)
    assert analysis.rows[0][3:] == (3, 1, 0, 1, 1, None, None)


def test_wordings_agree_where_all_replies_mean_the_same() -> None:
    calls = [
        [need(0, "Yes"), need(1, "yes."), need(2, "Yes")],
        [need(0, "No"), need(1, "Yes"), need(2, "No")],
        [need(0, "Hm"), need(1, "Yes"), need(2, "Yes")],
    ]
    results = [result(i, "top-down", True, "self-ask-ensemble", True, c) for i, c in enumerate(calls)]
    analysis = wordings(results, METRICS)
    agree = {row[2]: row[4].mean for row in analysis.rows if isinstance(row[4], Mean)}
    assert agree["all"] == pytest.approx(2 / 3, abs=1e-4)
    assert len(agree) == 4
    first_and_third = next(v for k, v in agree.items() if "Do you" in str(k) and "Would you" in str(k))
    assert first_and_third == 1.0
    (chart,) = analysis.charts
    assert isinstance(chart, Intervals)
    assert len(chart.points) == 1


def test_a_wording_whose_yes_means_knowing_is_turned_around_and_later_rounds_do_not_count() -> None:
    later = (Turn("need", "Yes", 3), Turn("what", "the county"))
    calls = [need(3, "Yes"), need(7, "No"), need(7, "Yes", later)]
    analysis = wordings([result(1, "bottom-up", True, "self-ask-skr-ensemble", True, calls)], METRICS)
    assert [row[3] for row in analysis.rows] == [1, 1]
    assert all(isinstance(row[4], Mean) and row[4].mean == 1.0 for row in analysis.rows)
