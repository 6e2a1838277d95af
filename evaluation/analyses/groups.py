"""The score of each setting in each part of a task, such as MMLU's subjects."""

from collections.abc import Iterable, Mapping

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis, Cell
from kcard.evaluation.charts.chart import Heat
from kcard.evaluation.record import Mean
from kcard.evaluation.report.outcome import Outcome, outcomes
from kcard.evaluation.runs.result import Result

__all__ = ["groups"]


def groups(results: Iterable[Result], metrics: Mapping[str, str]) -> Analysis:
    """A table and a heat map of groups x settings. Raises UsageError where no task has two groups."""
    found: dict[tuple[str, str], dict[str, list[Outcome]]] = {}
    for outcome in outcomes(results, metrics):
        if outcome.group:
            found.setdefault((outcome.task, outcome.group), {}).setdefault(outcome.setting, []).append(
                outcome
            )
    tasks = [task for task, _ in found]
    parts = {key: part for key, part in sorted(found.items()) if tasks.count(key[0]) > 1}
    if not parts:
        raise UsageError("no task of this run has groups: MMLU has subjects, PopQA relations")
    settings = list(dict.fromkeys(setting for part in parts.values() for setting in part))
    several = len({task for task, _ in parts}) > 1
    names = [f"{task}: {group}" if several else group for task, group in parts]
    means = [
        [Mean.of([o.score(metrics[task]) for o in part.get(setting, ())]) for setting in settings]
        for (task, _), part in parts.items()
    ]
    counts = [len({o.id for asked in part.values() for o in asked}) for part in parts.values()]
    return Analysis(
        "groups",
        "Score by group",
        "The score of each setting on the questions of each group, with 95 % intervals. Groups of few questions have "
        "wide intervals.",
        ("group", "questions", *settings),
        tuple((name, n, *row) for name, n, row in zip(names, counts, _cells(means), strict=True)),
        (
            Heat(
                f"score of {len(settings)} settings in {len(names)} groups; the numbers are in the table",
                tuple(names),
                tuple(settings),
                tuple(tuple(mean.mean if mean else None for mean in row) for row in means),
            ),
        ),
    )


def _cells(rows: list[list[Mean | None]]) -> list[list[Cell]]:
    return [list(row) for row in rows]
