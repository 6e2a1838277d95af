"""What each setting costs beside what it scores: calls, tokens, and how long questions take."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis, Cell
from kcard.evaluation.charts.chart import Intervals, Point
from kcard.evaluation.record import Mean
from kcard.evaluation.report.outcome import Outcome, outcomes
from kcard.evaluation.runs.result import Result

__all__ = ["cost"]

SHARES = (0.1, 0.5, 0.9, 0.99)


def cost(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """Latency as percentiles of the answered questions. Raises UsageError where there is no result."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes(results, metrics):
        if not outcome.failed:
            found.setdefault((outcome.task, outcome.setting), []).append(outcome)
    if not found:
        raise UsageError("this run has no answer yet")
    seconds = {key: _percentiles([o.seconds for o in part]) for key, part in found.items()}
    rows = tuple(
        (task, setting, *_row(part, metrics[task]), *seconds[task, setting])
        for (task, setting), part in found.items()
    )
    return Analysis(
        "cost",
        "Latency and cost",
        "Calls and tokens of the LLM are means a question; seconds are percentiles over questions, from the question "
        "to its answer. In a batch a question has its share of the batch's time.",
        ("task", "setting", "score", "calls", "tokens in", "tokens out", "10 %", "median", "90 %", "99 %"),
        rows,
        tuple(_chart(task, seconds) for task in dict.fromkeys(task for task, _ in found)),
    )


def _row(part: Sequence[Outcome], metric: str) -> list[Cell]:
    return [
        Mean.of([o.score(metric) for o in part]),
        sum(o.calls for o in part) / len(part),
        _mean([o.tokens_in for o in part]),
        _mean([o.tokens_out for o in part]),
    ]


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) / len(known) if len(known) == len(counts) else None


def _percentiles(seconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.quantile(seconds, SHARES))


def _chart(task: str, seconds: Mapping[tuple[str, str], Sequence[float]]) -> Intervals:
    return Intervals(
        f"seconds a question of each setting on {task}; the numbers are in the table",
        tuple(
            Point(setting, Mean(median, low, high))
            for (name, setting), (low, median, high, _) in seconds.items()
            if name == task
        ),
        f"seconds a question on {task}: median, and from 10 % to 90 %",
    )
