"""How well settings know races whose incumbent was not elected again (Knowledge Card, section 5 and table 5).

An LLM of before the election names the incumbent; cards that were trained later should not.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from kcard.errors import UsageError
from kcard.evaluation.analyses.analysis import Analysis
from kcard.evaluation.charts.chart import Intervals, Point
from kcard.evaluation.entries import entries
from kcard.evaluation.metrics import normalise, substring
from kcard.evaluation.record import Mean
from kcard.evaluation.report.outcome import outcomes
from kcard.evaluation.runs.result import Result

__all__ = ["lost_incumbents"]

Key = tuple[str, str]  # task and setting


def lost_incumbents(
    results: Iterable[Result], metrics: Mapping[str, str], file: Path | None = None
) -> Analysis:
    """Scores on the races of a file, and how often the answer names the incumbent.

    The file has `race`, as it stands in the questions, and `incumbent`. Raises UsageError without it, where it is
    malformed, and where no question is about one of its races.
    """
    if file is None:
        raise UsageError(
            "lost-incumbents needs a file with race and incumbent: --analysis lost-incumbents=races.csv"
        )
    incumbents = _read(file)
    scores: dict[Key, list[float]] = {}
    named: dict[Key, list[float]] = {}
    for result in results:
        incumbent = next(
            (name for race, name in incumbents if race in f" {normalise(result.question)} "), None
        )
        if incumbent is not None:
            key = result.task, result.setting
            (outcome,) = outcomes([result], metrics)
            scores.setdefault(key, []).append(outcome.score(metrics[result.task]))
            answer = result.choices.get(result.prediction, result.prediction)
            named.setdefault(key, []).append(float(_names(answer, incumbent)))
    if not scores:
        raise UsageError(
            f"no question of this run is about a race of {file}: write races as the questions do"
        )
    return Analysis(
        "lost-incumbents",
        "Races whose incumbent lost",
        "The score on races whose incumbent was not elected again, and the share of answers that name the incumbent, "
        "with 95 % intervals.",
        ("task", "setting", "races", "score", "names the incumbent"),
        tuple((*key, len(found), Mean.of(found), Mean.of(named[key])) for key, found in scores.items()),
        tuple(_chart(task, scores) for task in dict.fromkeys(task for task, _ in scores)),
    )


def _names(answer: str, incumbent: str) -> bool:
    """Whether an answer has the incumbent's name, or is a part of it."""
    return substring(answer, [incumbent]) or bool(normalise(answer) and substring(incumbent, [answer]))


def _read(file: Path) -> list[tuple[str, str]]:
    """Each race, normalised and between spaces, with its incumbent."""
    found = []
    for where, row in entries(file, "incumbents"):
        race, incumbent = row.get("race"), row.get("incumbent")
        if not (isinstance(race, str) and race.strip() and isinstance(incumbent, str) and incumbent.strip()):
            raise UsageError(f'{where}: expected "race" and "incumbent", each a text')
        found.append((f" {normalise(race)} ", incumbent))
    return found


def _chart(task: str, scores: Mapping[Key, list[float]]) -> Intervals:
    means = [(setting, Mean.of(found)) for (name, setting), found in scores.items() if name == task]
    return Intervals(
        f"scores on {task} where the incumbent lost; the numbers are in the table",
        tuple(Point(setting, mean) for setting, mean in means if mean is not None),
        f"score on {task} where the incumbent lost",
    )
