"""A run's summary: the task's metric with its interval, paired tests against the first setting, and costs."""

from dataclasses import replace

import pytest
from sklearn.metrics import balanced_accuracy_score, f1_score

from kcard.evaluation.runs.results import EvalResult, RecordedCall
from kcard.evaluation.runs.run import RunPlan, RunTask
from kcard.evaluation.runs.summary import SettingSummary, summarise

CLASSES = {"A": "true", "B": "false"}


def plan(metric: str, count: int) -> RunPlan:
    ids = tuple(str(n) for n in range(count))
    task = RunTask("t", "t.json", "ab" * 32, metric, ids, count)
    return RunPlan(("eval",), (task,), ("direct", "bottom-up", "hybrid"), "m")


def results(setting: str, right: str) -> list[EvalResult]:
    """One result for each letter: + right, - wrong, ! failed."""
    return [
        EvalResult(
            task="t",
            setting=setting,
            id=str(n),
            question="Who?",
            answers=("x",),
            prediction="" if mark == "!" else "x" if mark == "+" else "y",
            scores=dict.fromkeys(("em", "f1", "substring"), float(mark == "+")),
            calls=(RecordedCall("answer", "Who?", "x"),),
            tokens_in=100,
            tokens_out=10,
            seconds=0.5,
            error="timed out" if mark == "!" else "",
        )
        for n, mark in enumerate(right)
    ]


def rows(metric: str, *settings: list[EvalResult]) -> list[SettingSummary]:
    results = [result for setting in settings for result in setting]
    return summarise(plan(metric, len(settings[0])), results)


def test_p_is_that_of_mcnemars_test_against_the_first_setting_adjusted_for_all() -> None:
    first, second, third = rows(
        "em",
        results("direct", "+---------"),
        results("bottom-up", "-+++++++++"),
        results("hybrid", "+++-------"),
    )
    assert (first.p, first.p_holm) == (None, None)
    assert second.p == pytest.approx(22 / 1024)  # twice 1 + 10 of 2**10
    assert third.p == pytest.approx(0.5)
    assert second.p_holm == pytest.approx(44 / 1024)


def test_failed_questions_count_as_wrong_and_missing_ones_are_counted() -> None:
    whole, part = results("direct", "++!!"), results("bottom-up", "++")
    direct, bottom_up = rows("em", whole, part)
    assert (direct.n, direct.value, direct.errors, direct.missing) == (4, 0.5, 2, 0)
    assert (bottom_up.n, bottom_up.value, bottom_up.missing) == (2, 1.0, 2)
    assert direct.low < 0.5 < direct.high


def test_a_task_that_an_interrupted_run_did_not_come_to_has_no_rows() -> None:
    both = plan("em", 2)
    both = replace(both, tasks=(*both.tasks, replace(both.tasks[0], name="later")))
    assert [row.task for row in summarise(both, results("direct", "+-"))] == ["t"]


def test_balanced_accuracy_is_over_the_classes_that_the_options_name() -> None:
    predictions, right = "AABBAAAB", "AABBBBAA"
    results = []
    for n, (got, true) in enumerate(zip(predictions, right, strict=True)):
        scores = {"accuracy": float(got == true), "em": 0.0, "f1": 0.0, "substring": 0.0}
        results.append(EvalResult("t", "direct", str(n), "?", (true,), got, scores, CLASSES))
    (row,) = rows("balanced-accuracy", results)
    assert (
        row.value == row.balanced_accuracy == pytest.approx(balanced_accuracy_score([*right], [*predictions]))
    )
    assert row.macro_f1 == pytest.approx(f1_score([*right], [*predictions], average="macro"))
    assert row.low <= row.value <= row.high


def test_the_json_of_a_row_names_run_and_interval() -> None:
    (row,) = rows("em", results("direct", "+++-"))
    data = row.to_json(run=7)
    assert (data["run"], data["em"], data["setting"]) == (7, 0.75, "direct")
    assert data["interval"] == [round(row.low, 4), round(row.high, 4)]
    assert data["balanced_accuracy"] is None
