"""Every two settings of a task, compared on the same questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from kcard.evaluation.paired_tests import compared, holm
from kcard.evaluation.record import Mean
from kcard.evaluation.report.outcome import Outcome

__all__ = ["Pair", "pairs"]


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
            difference=Mean(0.0 - d.mean, 0.0 - d.high, 0.0 - d.low),  # no minus before a zero,
        )


Asked = tuple[str, Mapping[str, Outcome]]  # a setting, and its outcomes by question


def pairs(found: Sequence[Outcome], metrics: Mapping[str, str], seed: int = 0) -> list[Pair]:
    """Every two settings of every task, compared on the questions that both were asked."""
    by_task: dict[str, dict[str, dict[str, Outcome]]] = {}
    for outcome in found:
        by_task.setdefault(outcome.task, {}).setdefault(outcome.setting, {})[outcome.id] = outcome
    tested: list[Pair] = []
    for task, settings in by_task.items():
        both = [_pair(task, a, b, metrics[task], seed) for a, b in combinations(settings.items(), 2)]
        known = [pair for pair in both if pair is not None]
        adjusted = holm([pair.p for pair in known])
        tested += [replace(pair, p_holm=p) for pair, p in zip(known, adjusted, strict=True)]
    return tested


def _pair(task: str, first: Asked, second: Asked, metric: str, seed: int) -> Pair | None:
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
