"""A run as the page and the tables show it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.report.excerpt import QUESTIONS, Excerpt, excerpt
from kcard.evaluation.report.outcome import outcomes
from kcard.evaluation.report.pairs import Pair, pairs
from kcard.evaluation.runs.prices import Prices
from kcard.evaluation.runs.result import Result
from kcard.evaluation.runs.run import Run
from kcard.evaluation.runs.summary import SettingSummary, summarise

__all__ = ["Report", "make_report"]


@dataclass(frozen=True)
class Report:
    """A run, its table, its paired tests, and the questions that are shown in full."""

    run: Run
    rows: tuple[SettingSummary, ...]
    pairs: tuple[Pair, ...]
    excerpt: Excerpt
    analyses: tuple[Analysis, ...] = ()

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.task for row in self.rows))

    @property
    def settings(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.setting for row in self.rows))

    def of(self, task: str) -> tuple[SettingSummary, ...]:
        """The rows of a task."""
        return tuple(row for row in self.rows if row.task == task)

    def row(self, task: str, setting: str) -> SettingSummary | None:
        return next((row for row in self.of(task) if row.setting == setting), None)

    def reference(self, task: str) -> str:
        """The setting that others are compared with: the first."""
        return self.of(task)[0].setting

    def pair(self, task: str, first: str, second: str) -> Pair | None:
        """The comparison of the first setting with the second; None where there is none."""
        for pair in self.pairs:
            if pair.task == task and {pair.first, pair.second} == {first, second} and first != second:
                return pair if pair.first == first else pair.turned
        return None


def make_report(
    run: Run,
    results: Sequence[Result],
    questions: int = QUESTIONS,
    analyses: Sequence[Analysis] = (),
    whole: Iterable[Result] | None = None,
) -> Report:
    """The report of a run.

    questions  at most so many are shown in full
    whole      the results with all their texts, where `results` are brief

    Raises UsageError where there is no result.
    """
    metrics = metrics_of(run)
    options = run.plan.options
    prices = Prices(options.get("price_in"), options.get("price_out"))
    found = outcomes(results, metrics)
    if not found:
        raise UsageError(f"run {run.number} has no results yet: run it with `kcard eval`, then report it")
    return Report(
        run,
        tuple(summarise(run.plan, results, prices)),
        tuple(pairs(found, metrics, run.plan.seed)),
        excerpt(found, results if whole is None else whole, questions),
        tuple(analyses),
    )


def metrics_of(run: Run) -> Mapping[str, str]:
    """The metric of every task."""
    return {task.name: task.metric for task in run.plan.tasks}
