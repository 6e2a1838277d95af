"""Analyses of a run: a table, charts, and a sentence or two that explain them; and the registry of all analyses."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kcard import system
from kcard.errors import UsageError
from kcard.evaluation.plots import Chart, Intervals, PlotPoint
from kcard.evaluation.records import Mean
from kcard.evaluation.runs.results import EvalResult

# Built-in analyses and plugins are entry points of this group.
GROUP = "kcard.analyses"
Cell = str | int | float | Mean | None


@dataclass(frozen=True)
class Analysis:
    """The result of an analysis.

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
    """A function that analyses a run, registered under `kcard.analyses`."""

    def __call__(self, results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
        """Analyse results, which may come without prompts and passages' texts (`drop_texts`). `metrics` by task.

        An analysis that needs a file takes its path as a third argument.

        Raises UsageError, with a remedy, if the results contain nothing to analyse.
        """
        ...


def format_cell(cell: Cell) -> str:
    """Format a cell as text."""
    if cell is None:
        return "–"
    if isinstance(cell, Mean):
        return f"{cell.mean:.3f} [{cell.low:.3f}, {cell.high:.3f}]"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, float) and abs(cell) < 100:
        return f"{cell:.3f}"
    return f"{cell:,.0f}"


SettingKey = tuple[str, str]  # task and setting


def group_by_setting(results: Iterable[EvalResult]) -> dict[SettingKey, list[EvalResult]]:
    """Return the results of each setting on each task, in their order."""
    groups: dict[SettingKey, list[EvalResult]] = {}
    for result in results:
        groups.setdefault((result.task, result.setting), []).append(result)
    return groups


def group_name(result: EvalResult) -> str:
    """Return the task and group of a result, as one name."""
    if result.group:
        return f"{result.task}: {result.group}"
    return result.task


def charts_by_task(label: str, means: Mapping[SettingKey, Mean | None]) -> tuple[Intervals, ...]:
    """Return a chart of the settings' means for each task. `label` contains {task}."""
    points: dict[str, list[PlotPoint]] = {}
    for (task, setting), mean in means.items():
        if mean is not None:
            points.setdefault(task, []).append(PlotPoint(setting, mean))
    charts = [Intervals(label.format(task=task), tuple(part)) for task, part in points.items()]
    return tuple(charts)


def analysis_names() -> list[str]:
    """Return the names of all analyses, sorted."""
    return system.names(GROUP)


def analyse(name: str, results: Iterable[EvalResult], metrics: Mapping[str, str]) -> Analysis:
    """Run an analysis: NAME, or NAME=FILE for one that needs a file. `metrics` by task.

    Raises UsageError for an unknown name, for a file that the analysis doesn't take, and if the results contain nothing
    to analyse.
    """
    name, separator, file = name.partition("=")
    if name not in analysis_names():
        raise UsageError(f"unknown analysis {name!r}: choose one of {', '.join(analysis_names()) or 'none'}")
    analyst: Callable[..., Analysis] = system.load(GROUP, name)
    if not separator:
        return analyst(results, metrics)
    if len(inspect.signature(analyst).parameters) < 3:
        raise UsageError(f"the analysis {name} takes no file: leave out ={file}")
    return analyst(results, metrics, Path(file).expanduser())


def run_applicable(results: Iterable[EvalResult], metrics: Mapping[str, str]) -> list[Analysis]:
    """Run every analysis, and return those that find something in the results."""
    analyses = []
    for name in analysis_names():
        try:
            analyses.append(analyse(name, results, metrics))
        except UsageError:
            continue
    return analyses
