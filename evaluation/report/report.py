"""A run as the page and the tables show it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.report.excerpt import QUESTIONS, Excerpt, excerpt
from kcard.evaluation.report.outcome import outcomes
from kcard.evaluation.report.table import Pair, Price, Row, pairs, reference, rows
from kcard.evaluation.runs.result import Result
from kcard.evaluation.runs.run import Run

__all__ = ["Report", "make_report"]


@dataclass(frozen=True)
class Report:
    """A run, its table, its paired tests, and the questions that are shown in full."""

    run: Run
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]
    excerpt: Excerpt
    analyses: tuple[Analysis, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.task for row in self.rows))

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.setting for row in self.rows))

    def of(self, task: str) -> tuple[Row, ...]:
        """The rows of a task."""
        return tuple(row for row in self.rows if row.task == task)

    def row(self, task: str, setting: str) -> Row | None:
        return next((row for row in self.of(task) if row.setting == setting), None)

    def reference(self, task: str) -> str:
        """The setting that others are compared with."""
        return reference([row.setting for row in self.of(task)])

    def pair(self, task: str, first: str, second: str) -> Pair | None:
        """The comparison of the first setting with the second; None where there is none."""
        for pair in self.pairs:
            if pair.task == task and {pair.first, pair.second} == {first, second} and first != second:
                return pair if pair.first == first else pair.turned
        return None


def make_report(
    run: Run,
    results: Iterable[Result],
    price: Price | None = None,
    questions: int = QUESTIONS,
    analyses: Sequence[Analysis] = (),
) -> Report:
    """The report of a run, whose results are iterated twice. `questions`: at most so many are shown in full.

    Raises UsageError where there is no result.
    """
    metrics = metrics_of(run)
    found = outcomes(results, metrics)
    if not found:
        raise UsageError(f"run {run.number} has no results yet: run it with `kcard eval`, then report it")
    return Report(
        run,
        tuple(rows(found, metrics, price)),
        tuple(pairs(found, metrics, run.plan.seed)),
        excerpt(found, results, questions),
        tuple(analyses),
    )


def metrics_of(run: Run) -> Mapping[str, str]:
    """The metric of every task."""
    return {task.name: task.metric for task in run.plan.tasks}
