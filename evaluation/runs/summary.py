"""What a run comes to: one row for each task and setting."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from kcard.evaluation.classification import balanced_accuracy, macro_f1
from kcard.evaluation.intervals import bootstrap_interval, interval
from kcard.evaluation.paired_tests import compared, holm
from kcard.evaluation.runs.prices import Prices
from kcard.evaluation.runs.result import Call, Result
from kcard.evaluation.runs.run import RunPlan, RunTask

__all__ = ["SettingSummary", "summarise"]

DIGITS = 4
BALANCED = "balanced-accuracy"


@dataclass(frozen=True)
class SettingSummary:
    """A task under a setting. Scores are means over all `n` questions, in [0, 1]; those that failed count as wrong.

    value, low, high  the task's own `metric` with its 95 % interval
    p, p_holm         of the paired test against the first setting: by itself, and for all settings of the task at once;
                      None for the first one
    calls             requests to the LLM; the tokens are those of all of them, None where a backend does not tell
    cost              None without prices
    seconds           of all questions together
    errors            questions without an answer
    missing           questions that were not asked yet
    """

    task: str
    setting: str
    metric: str
    n: int
    value: float
    low: float
    high: float
    p: float | None
    p_holm: float | None
    em: float
    f1: float
    substring: float
    accuracy: float | None
    balanced_accuracy: float | None
    macro_f1: float | None
    calls: int
    tokens_in: int | None
    tokens_out: int | None
    cost: float | None
    seconds: float
    errors: int
    missing: int = 0

    def to_json(self, run: int) -> dict[str, Any]:
        """The row as `kcard eval --json` prints it."""
        data = {
            key: round(value, DIGITS)
            if isinstance(value, float) and key not in ("p", "p_holm", "cost")
            else value
            for key, value in asdict(self).items()
        }
        low, high = data.pop("low"), data.pop("high")
        return data | {"interval": [low, high], "run": run}


def summarise(plan: RunPlan, results: Iterable[Result], prices: Prices | None = None) -> list[SettingSummary]:
    """A row for each task and setting that has results, in the order of the plan."""
    found: defaultdict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        found[result.task, result.setting].append(_light(result))
    rows = []
    for task in plan.tasks:
        settings = {s: found[task.name, s] for s in plan.settings if found[task.name, s]}
        for (setting, theirs), (p, adjusted) in zip(settings.items(), _ps(task, settings), strict=True):
            rows.append(_row(task, setting, theirs, p, adjusted, prices or Prices()))
    return rows


def _light(result: Result) -> Result:
    """The result without its texts, of which a run has more than memory may hold."""
    return replace(result, trace={}, calls=(Call("", "", ""),) * len(result.calls))


def _ps(task: RunTask, settings: Mapping[str, Sequence[Result]]) -> list[tuple[float | None, float | None]]:
    """Of each setting, p against the first one on the questions that both have, and p adjusted for all (Holm)."""
    first, *others = [_scores(task, results) for results in settings.values()]
    ps = []
    for scores in others:
        both = [i for i in scores if i in first]
        ps.append(compared([scores[i] for i in both], [first[i] for i in both]).p if both else 1.0)
    return [(None, None), *zip(ps, holm(ps), strict=True)]


def _scores(task: RunTask, results: Iterable[Result]) -> dict[str, float]:
    """The score of each question; of a metric over all questions, whether each is right."""
    metric = "accuracy" if task.metric == BALANCED else task.metric
    return {result.id: result.scores.get(metric, result.scores["em"]) for result in results}


def _row(
    task: RunTask,
    setting: str,
    results: Sequence[Result],
    p: float | None,
    adjusted: float | None,
    prices: Prices,
) -> SettingSummary:
    scores = list(_scores(task, results).values())
    value, (low, high) = _mean(scores), interval(scores)
    choice = all("accuracy" in result.scores for result in results)
    predicted, actual = _classes(task, results) if choice else ([], [])
    if task.metric == BALANCED:
        value = balanced_accuracy(predicted, actual)
        low, high = bootstrap_interval(balanced_accuracy, predicted, actual)
    return SettingSummary(
        task=task.name,
        setting=setting,
        metric=task.metric,
        n=len(results),
        value=value,
        low=low,
        high=high,
        p=p,
        p_holm=adjusted,
        em=_mean([result.scores["em"] for result in results]),
        f1=_mean([result.scores["f1"] for result in results]),
        substring=_mean([result.scores["substring"] for result in results]),
        accuracy=_mean([result.scores["accuracy"] for result in results]) if choice else None,
        balanced_accuracy=balanced_accuracy(predicted, actual) if choice else None,
        macro_f1=macro_f1(predicted, actual) if choice else None,
        calls=sum(len(result.calls) for result in results),
        tokens_in=_sum([result.tokens_in for result in results]),
        tokens_out=_sum([result.tokens_out for result in results]),
        cost=prices.cost(results),
        seconds=sum(result.seconds for result in results),
        errors=sum(bool(result.error) for result in results),
        missing=len(task.ids) - len(results),
    )


def _classes(task: RunTask, results: Iterable[Result]) -> tuple[list[str], list[str]]:
    """What was chosen and what is right: the texts of the options where these are classes, else their letters."""
    predicted, actual = [], []
    for result in results:
        right = result.prediction if result.prediction in result.answers else result.answers[0]
        classes = result.choices if task.metric == BALANCED else {letter: letter for letter in result.choices}
        predicted.append(classes.get(result.prediction, ""))
        actual.append(classes[right])
    return predicted, actual


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _sum(counts: Sequence[int | None]) -> int | None:
    """None where one is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
