"""What an analysis finds: a table, charts, and a sentence or two that say what they show."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kcard.evaluation.charts.chart import Chart
from kcard.evaluation.record import Mean
from kcard.evaluation.runs.result import Result

__all__ = ["Analysis", "Analyst", "Cell", "shown"]

Cell = str | int | float | Mean | None


@dataclass(frozen=True)
class Analysis:
    """A finding about a run.

    text  what it shows, and what it does not
    rows  one cell for each of `columns`; None: not measured
    """

    name: str
    title: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    charts: tuple[Chart, ...] = ()


class Analyst(Protocol):
    """A function from a run's results to what they show. Registered under `kcard.analyses`."""

    def __call__(self, results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
        """`metrics` by task. The results may be brief: without prompts and the texts of passages (report/brief.py).

        An analysis that needs a file takes its path as a third argument.

        Raises UsageError, with a remedy, where they hold nothing to analyse.
        """
        ...


def shown(cell: Cell) -> str:
    """A cell as text."""
    if cell is None:
        return "–"
    if isinstance(cell, Mean):
        return f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]"
    if isinstance(cell, float):
        return f"{cell:.3f}" if abs(cell) < 100 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
