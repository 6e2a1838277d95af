"""Settings of a run that vary one setting in some of its options, with their outcomes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kcard.evaluation.record import Mean
from kcard.evaluation.report.outcome import Outcome, outcomes
from kcard.evaluation.runs.result import Result
from kcard.evaluation.runs.setting_name import SettingName

__all__ = ["Variant", "difference", "score", "varied"]


@dataclass(frozen=True)
class Variant:
    """A setting on a task. `base`: the setting without the options that are varied; `options`: these."""

    task: str
    base: str
    options: tuple[tuple[str, str], ...]
    outcomes: Mapping[str, Outcome]

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the options, without their names."""
        return tuple(value for _, value in self.options)


def varied(results: Iterable[Result], metrics: Mapping[str, str], keys: frozenset[str]) -> list[Variant]:
    """Every setting of every task, with its options among `keys`, in the order of the results."""
    found: dict[tuple[str, str], dict[str, Outcome]] = {}
    for outcome in outcomes(results, metrics):
        found.setdefault((outcome.task, outcome.setting), {})[outcome.id] = outcome
    made = []
    for (task, setting), part in found.items():
        name = SettingName.of(setting)
        options = tuple(each for each in name.options if each[0] in keys)
        base = SettingName(name.base, tuple(each for each in name.options if each[0] not in keys))
        made.append(Variant(task, str(base), options, part))
    return made


def score(variant: Variant, metric: str) -> Mean:
    """The mean of the metric, with its interval."""
    found = Mean.of([outcome.score(metric) for outcome in variant.outcomes.values()])
    assert found is not None  # a variant has an outcome
    return found


def difference(first: Variant, second: Variant, metric: str) -> Mean | None:
    """The first's score less the second's on the questions that both were asked; None where there is none."""
    both = [(o, second.outcomes[id_]) for id_, o in first.outcomes.items() if id_ in second.outcomes]
    return Mean.of([a.score(metric) - b.score(metric) for a, b in both], paired=True)
