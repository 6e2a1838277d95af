"""Cards against retrieval over the same text: counts checked by hand."""

from collections.abc import Callable

import pytest

from kcard.errors import UsageError
from kcard.evaluation.analyses.answers import brief, sources
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.run import EvalResult

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


@pytest.mark.parametrize("read", [brief, lambda whole: whole])
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
    assert chart.kind == "intervals"


@pytest.mark.parametrize("results", [WITH, LOOKED_UP, [*WITH, *TOGETHER], []])
def test_a_run_without_both_is_told_what_to_run(results: list[EvalResult]) -> None:
    with pytest.raises(
        UsageError, match="run a setting with cards, such as bottom-up, and retrieval or replug"
    ):
        sources(results, METRICS)
