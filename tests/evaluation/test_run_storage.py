"""Runs are read from the hub as they were written."""

from dataclasses import replace

import pytest

from kcard.errors import HubError
from kcard.evaluation.runs.run import Call, EvalResult, RunPlan, RunStorage, RunTask
from kcard.hub.registry import Hub
from tests.command import Kcard

PLAN = RunPlan(
    ("eval", "midterm", "--path", "races.json"),
    (RunTask("midterm", "races.json", "ab" * 32, "em", ("a", "b"), 7),),
    ("direct", "bottom-up"),
    "embedded",
    cards={"races@v1": "cd" * 32},
    options={"path": ["races.json"], "limit": 2},
    versions={"kcard": "0"},
)
RESULT = EvalResult(
    task="midterm",
    setting="bottom-up",
    id="a",
    question="Who won?",
    answers=("Ana Ruiz", "Ruiz"),
    prediction="Ruiz",
    scores={"em": 1.0, "f1": 1.0},
    choices={"A": "Ruiz"},
    popularity=2.5,
    calls=(Call("answer", "Question: Who won?", "Ruiz", 7, 1, 0.25),),
    tokens_in=7,
    seconds=0.5,
    trace={"answer": "Ruiz", "passages": [{"card": "races", "kept": True}]},
)


def test_a_run_and_its_results_are_read_as_they_were_written() -> None:
    storage = RunStorage(Hub().runs)
    run = storage.create(PLAN)
    storage.append(run, [RESULT])
    assert storage.get(run.number).plan == PLAN
    assert list(storage.results(run.number)) == [RESULT]
    assert [found.answered for found in storage.list()] == [1]
    assert not storage.get(run.number).complete


def test_results_come_setting_by_setting_in_the_order_of_the_questions() -> None:
    storage = RunStorage(Hub().runs)
    run = storage.create(PLAN)
    scores = {"em": 0.0}
    results = [EvalResult(t, s, q, "Who?", ("x",), "y", scores) for t, s, q in PLAN.keys()]  # noqa: SIM118
    storage.append(run, reversed(results))
    assert list(storage.results(run.number)) == results
    assert storage.get(run.number).complete


def test_a_failed_question_counts_as_failed() -> None:
    storage = RunStorage(Hub().runs)
    run = storage.create(PLAN)
    storage.append(
        run, [EvalResult("midterm", "direct", "b", "Who?", ("x",), "", {"em": 0.0}, error="timed out")]
    )
    assert (storage.get(run.number).answered, storage.get(run.number).failed) == (0, 1)


def test_a_run_of_a_newer_version_is_refused_by_number() -> None:
    hub = Hub()
    number = hub.runs.create('{"colour": "red"}', planned=1).number
    with pytest.raises(HubError, match=f"run {number} can't be read: unknown key 'colour'"):
        RunStorage(hub.runs).get(number)


def test_the_settings_of_an_analysis_are_counted_in_the_list_of_runs(kcard: Kcard) -> None:
    variants = tuple(f"bottom-up+n1={n}+cards=races" for n in range(20))
    storage = RunStorage(Hub().runs)
    storage.create(PLAN)
    storage.create(replace(PLAN, settings=(*PLAN.settings, *variants)))
    table = " ".join(kcard("runs").out.split())
    assert "direct, bottom-up embedded" in table
    assert "direct, bottom-up, 20 with other n1, cards embedded" in table
