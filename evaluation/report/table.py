"""The table of a report: settings x tasks, each with its score, its interval and what it cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby

from kcard.evaluation.paired_tests import compared, holm
from kcard.evaluation.record import Mean
from kcard.evaluation.report.outcome import Outcome

__all__ = ["Pair", "Price", "Row", "pairs", "reference", "rows"]


@dataclass(frozen=True)
class Price:
    """What a million tokens cost, in the currency of whoever pays; at least 0."""

    tokens_in: float
    tokens_out: float

    def of(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.tokens_in + tokens_out * self.tokens_out) / 1e6


@dataclass(frozen=True)
class Row:
    """One setting on one task.

    questions       how many were asked; `failed` of them have no answer and count as wrong
    score           the mean of the task's metric, with its 95 % interval
    scores          the means of the other metrics
    calls, seconds  of the LLM, and wall time, a question
    tokens_in, tokens_out  of all questions; None where the backend does not tell them all
    money           of all questions; None without a price or the tokens
    """

    task: str
    setting: str
    metric: str
    questions: int
    failed: int
    score: Mean
    scores: Mapping[str, float]
    calls: float
    tokens_in: int | None
    tokens_out: int | None
    seconds: float
    money: float | None


@dataclass(frozen=True)
class Pair:
    """Two settings on the same questions of a task.

    only_first, only_second  how many questions only one of them answered
    difference               of the first's score less the second's, with the 95 % interval of the paired bootstrap
    p                        two-sided, of McNemar's exact test; of scores between 0 and 1, the permutation test
    p_holm                   the same for all pairs of the task at once (Holm, 1979)
    """

    task: str
    first: str
    second: str
    questions: int
    only_first: int
    only_second: int
    difference: Mean
    p: float
    p_holm: float

    @property
    def turned(self) -> "Pair":
        """The same, seen from the second setting."""
        d = self.difference
        return replace(
            self,
            first=self.second,
            second=self.first,
            only_first=self.only_second,
            only_second=self.only_first,
            difference=Mean(-d.mean, -d.high, -d.low),
        )


def rows(found: Sequence[Outcome], metrics: Mapping[str, str], price: Price | None = None) -> list[Row]:
    """One row for each setting of each task, in the order in which they first appear."""
    return [_row(task, setting, part, metrics[task], price) for task, setting, part in _parts(found)]


def reference(settings: Sequence[str]) -> str:
    """The setting that others are compared with: the first."""
    return settings[0]


def pairs(found: Sequence[Outcome], metrics: Mapping[str, str], seed: int = 0) -> list[Pair]:
    """Every two settings of every task, compared on the questions that both were asked."""
    by_task = {
        task: [(setting, {o.id: o for o in part}) for _, setting, part in parts]
        for task, parts in groupby(_parts(found), key=lambda part: part[0])
    }
    compared: list[Pair] = []
    for task, settings in by_task.items():
        tested = [
            _pair(task, first, second, metrics[task], seed) for first, second in combinations(settings, 2)
        ]
        known = [pair for pair in tested if pair is not None]
        compared += [
            replace(pair, p_holm=p) for pair, p in zip(known, holm([pair.p for pair in known]), strict=True)
        ]
    return compared


def _parts(found: Sequence[Outcome]) -> list[tuple[str, str, list[Outcome]]]:
    """The outcomes by task and setting; those of one task stand together."""
    parts: dict[str, dict[str, list[Outcome]]] = {}
    for outcome in found:
        parts.setdefault(outcome.task, {}).setdefault(outcome.setting, []).append(outcome)
    return [(task, setting, part) for task, settings in parts.items() for setting, part in settings.items()]


def _row(task: str, setting: str, part: Sequence[Outcome], metric: str, price: Price | None) -> Row:
    n = len(part)
    tokens_in, tokens_out = _sum([o.tokens_in for o in part]), _sum([o.tokens_out for o in part])
    score = Mean.of([o.score(metric) for o in part])
    assert score is not None
    names = sorted({name for o in part for name in o.scores} - {metric})
    return Row(
        task=task,
        setting=setting,
        metric=metric,
        questions=n,
        failed=sum(o.failed for o in part),
        score=score,
        scores={name: sum(o.scores.get(name, 0.0) for o in part) / n for name in names},
        calls=sum(o.calls for o in part) / n,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        seconds=sum(o.seconds for o in part) / n,
        money=None
        if price is None or tokens_in is None or tokens_out is None
        else price.of(tokens_in, tokens_out),
    )


def _sum(numbers: Sequence[int | None]) -> int | None:
    """None where one is not known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _pair(
    task: str,
    first: tuple[str, Mapping[str, Outcome]],
    second: tuple[str, Mapping[str, Outcome]],
    metric: str,
    seed: int,
) -> Pair | None:
    """None where no question was asked under both."""
    both = [(outcome, second[1][id_]) for id_, outcome in first[1].items() if id_ in second[1]]
    if not both:
        return None
    found = compared([a.score(metric) for a, _ in both], [b.score(metric) for _, b in both], seed)
    return Pair(
        task=task,
        first=first[0],
        second=second[0],
        questions=found.n,
        only_first=sum(a.right and not b.right for a, b in both),
        only_second=sum(b.right and not a.right for a, b in both),
        difference=Mean(found.difference, found.low, found.high),
        p=found.p,
        p_holm=found.p,
    )
