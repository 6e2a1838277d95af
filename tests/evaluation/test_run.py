"""Runs are read from the hub as they were written."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kcard.errors import HubError, UsageError
from kcard.evaluation.analyses.answers import sources
from kcard.evaluation.plots import Intervals
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.run import (
    EvalResult,
    RecordedCall,
    RunPlan,
    RunStorage,
    RunTask,
    drop_texts,
    make_question,
)
from kcard.evaluation.tasks.base import Item, TaskData
from kcard.hub.registry import Hub
from kcard.types import Choice
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
    calls=(RecordedCall("answer", "Question: Who won?", "Ruiz", 7, 1, 0.25),),
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
    assert "22 of direct, bottom-up embedded" in table


# Demonstrations go with each question of a run; those of a classification stand in turns by class.

CLASSES = (Choice("A", "satire"), Choice("B", "hoax"), Choice("C", "trusted"))
ITEM = Item("q", "Some news", ("A",), CLASSES)


def task(shots: tuple[Item, ...]) -> TaskData:
    return TaskData("lun", "balanced-accuracy", (ITEM,), "0", {"": shots})


def test_the_last_demonstrations_of_a_classification_are_of_all_classes() -> None:
    shots = [
        Item(f"{letter}{n}", f"news {letter}{n}", (letter,), CLASSES) for letter in "ABC" for n in range(3)
    ]
    question = make_question(task((*shots, Item("B3", "news B3", ("B",), CLASSES))), ITEM, None)
    letters = [example.reply for example in question.examples]
    assert letters == ["B", "A", "B", "C", "A", "B", "C", "A", "B", "C"]
    assert question.examples[-2].question == "news B3"
    assert [e.reply for e in make_question(task(tuple(shots)), ITEM, 3).examples] == ["A", "B", "C"]
    assert all(example.choices == CLASSES for example in question.examples)


def test_demonstrations_with_options_of_their_own_keep_their_order() -> None:
    shots = tuple(
        Item(str(n), f"who {n}", (letter,), (Choice("A", f"Ann {n}"), Choice("B", f"Ben {n}")))
        for n, letter in enumerate("AAB")
    )
    assert [example.question for example in make_question(task(shots), ITEM, None).examples] == [
        "who 0",
        "who 1",
        "who 2",
    ]


# Cards against retrieval over the same text: counts checked by hand.

METRICS = {"lun": "accuracy"}
CHOICES = {"A": "Ruiz", "B": "Lind"}


def result(
    id_: str, setting: str, mode: str, right: bool, card: str, text: str, error: str = ""
) -> EvalResult:
    passages = [
        {"card": card, "text": text, "kept": True},
        {"card": card, "text": "Ruiz won.", "kept": False},
    ]
    return EvalResult(
        "lun", setting, id_, "Who won?", ("A",), "A" if right else "B", {"accuracy": float(right)}, choices=CHOICES,
        trace={} if error else {"mode": mode, "passages": passages}, error=error,
    )  # fmt: skip


WITH = [
    result("1", "bottom-up", "bottom-up", True, "wikipedia", "Ruiz won."),
    result("2", "bottom-up", "bottom-up", True, "wikipedia", "Lind lost."),
    result("3", "bottom-up", "bottom-up", False, "wikipedia", "Nobody knows."),
    result("4", "bottom-up", "bottom-up", True, "wikipedia", "Ruiz won.", error="down"),
]
LOOKED_UP = [
    result("1", "replug", "replug", True, "retrieval", "Ruiz won."),
    result("2", "replug", "replug", False, "retrieval", "Ruiz won."),
    result("3", "replug", "replug", False, "retrieval", "Ruiz won."),
    result("4", "replug", "replug", True, "retrieval", "Ruiz won."),
]
TOGETHER = [result("1", "cards+retrieval", "bottom-up", True, "retrieval", "Ruiz won.")]
WROTE_ITSELF = [result("1", "genread", "genread", True, "genread", "Ruiz won.")]


@pytest.mark.parametrize("read", [drop_texts, lambda whole: whole])
def test_cards_and_retrieval_are_compared_on_the_questions_that_both_answered(
    read: Callable[[EvalResult], EvalResult],
) -> None:
    analysis = sources([read(r) for r in [*WITH, *LOOKED_UP, *TOGETHER, *WROTE_ITSELF]], METRICS)
    [row] = analysis.rows
    assert row[:4] == ("lun", "bottom-up", "replug", 3)
    means = [cell.mean for cell in row if isinstance(cell, Mean)]
    assert means == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3, 1], abs=1e-3)
    assert (row[7], row[8], row[9]) == (1.0, 1, 0)
    [chart] = analysis.charts
    assert isinstance(chart, Intervals)


@pytest.mark.parametrize("results", [WITH, LOOKED_UP, [*WITH, *TOGETHER], []])
def test_a_run_without_both_is_told_what_to_run(results: list[EvalResult]) -> None:
    with pytest.raises(
        UsageError, match="run a setting with cards, such as bottom-up, and retrieval or replug"
    ):
        sources(results, METRICS)
