"""One calibration: gates compared on a user's own records, each cross-validated on the same folds.

Every gate scores each record held out. Its threshold is chosen anew, on the held-out scores of the other folds: the
most accurate one that lets at most the budget seek. So all gates are compared as what they are, a ranking of
questions, and a gate that ranks no better than chance ends at never or always.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.cost_curve import Point, cheapest_best, curve
from kcard.evaluation.gates.folds import FOLDS, Indices, folds
from kcard.evaluation.gates.outcome import Floats, GateOutcome, Seeks, both_ways, outcomes
from kcard.evaluation.gates.trial import Trial, tried
from kcard.evaluation.intervals import interval
from kcard.evaluation.paired_tests import holm, sign_flip
from kcard.gates.kinds import Kind, Resources
from kcard.gates.query import Query
from kcard.gates.record import Record

__all__ = ["Baseline", "Calibration", "ComparedGate", "GateCandidate", "calibrated", "reference"]

Report = Callable[[str], None]


@dataclass(frozen=True)
class GateCandidate:
    """A gate to be compared: a kind, and what it is fitted with."""

    name: str
    kind: Kind
    settings: Mapping[str, Any]
    resources: Resources


@dataclass(frozen=True)
class Baseline:
    """The best that no gate is needed for: never, always, or a share drawn at random where always costs too much.

    `outcomes`: how right each answer is, expected where it is drawn; shape (n,).
    """

    name: str
    share: float
    outcomes: Floats

    @property
    def accuracy(self) -> float:
        return float(self.outcomes.mean())


@dataclass(frozen=True)
class ComparedGate:
    """One gate. `low` and `high` are 95 % bootstrap intervals.

    difference  accuracy less that of the reference, with its interval
    p           of the paired test against the reference; p_holm: for all the gates that were compared
    curve       cost against accuracy, over all held-out scores
    threshold   what the gate is to be used with: chosen on all held-out scores
    obstacle    why it can't be asked with the text of a question alone, as `kcard ask` does; empty where it can
    """

    gate: str
    outcome: GateOutcome
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    p: float
    p_holm: float
    threshold: float
    curve: tuple[Point, ...]
    trial: Trial
    obstacle: str = ""


@dataclass(frozen=True)
class Calibration:
    """What was compared. `skipped`: gates that these records can't fit, and why not."""

    records: int
    folds: int
    seed: int
    budget: float
    reference: Baseline
    rows: tuple[ComparedGate, ...]
    skipped: tuple[tuple[str, str], ...]
    baselines: GateOutcome


def calibrated(
    records: Sequence[Record],
    candidates: Sequence[GateCandidate],
    *,
    budget: float = 1.0,
    count: int = FOLDS,
    seed: int = 0,
    report: Report | None = None,
) -> Calibration:
    """Compare the gates. `report` is called with the name of each gate as its turn comes.

    Raises UsageError for a budget outside [0, 1] or folds that the records don't allow. A gate that can't be fitted
    is skipped.
    """
    if not 0 <= budget <= 1:
        raise UsageError(f"budget is {budget:g}: it must be a share of the questions, from 0 to 1")
    cut = folds(records, count, seed)
    best = reference(records, budget)
    found: list[tuple[str, Trial, Seeks]] = []
    skipped = []
    for candidate in candidates:
        if report:
            report(candidate.name)
        try:
            trial = tried(records, candidate.kind, candidate.settings, candidate.resources, cut)
        except UsageError as error:
            skipped.append((candidate.name, str(error)))
            continue
        found.append((candidate.name, trial, _decided(records, trial.scores, cut, budget)))
    ps = [sign_flip(outcomes(records, seeks) - best.outcomes, seed) for _, _, seeks in found]
    rows = [
        _row(records, *one, best, p, adjusted, budget, seed)
        for one, p, adjusted in zip(found, ps, holm(ps), strict=True)
    ]
    nothing = GateOutcome.of(records, np.zeros(len(records), dtype=np.bool_))
    return Calibration(len(records), count, seed, budget, best, tuple(rows), tuple(skipped), nothing)


def reference(records: Sequence[Record], budget: float = 1.0) -> Baseline:
    """The most accurate way without a gate that keeps to the budget; of equals, the cheapest."""
    without, with_ = both_ways(records)
    if with_.mean() <= without.mean() or not budget:
        return Baseline("never", 0.0, without)
    if budget >= 1:
        return Baseline("always", 1.0, with_)
    return Baseline(f"random {budget:.0%}", budget, (1 - budget) * without + budget * with_)


def _decided(records: Sequence[Record], scores: Floats, cut: Sequence[Indices], budget: float) -> Seeks:
    """Which records seek, by the threshold that the held-out scores of the other folds call for."""
    seeks = np.zeros(len(records), dtype=np.bool_)
    for held_out in cut:
        others = np.setdiff1d(np.arange(len(records)), held_out)
        points = curve([records[i] for i in others], scores[others])
        seeks[held_out] = scores[held_out] < cheapest_best(points, budget).threshold
    return seeks


def _row(
    records: Sequence[Record],
    gate: str,
    trial: Trial,
    seeks: Seeks,
    best: Baseline,
    p: float,
    adjusted: float,
    budget: float,
    seed: int,
) -> ComparedGate:
    right = outcomes(records, seeks)
    low, high = interval(right.tolist(), seed)
    differences = right - best.outcomes
    difference_low, difference_high = interval(differences.tolist(), seed, paired=True)
    points = curve(records, trial.scores)
    return ComparedGate(
        gate=gate,
        outcome=GateOutcome.of(records, seeks),
        low=low,
        high=high,
        difference=float(differences.mean()),
        difference_low=difference_low,
        difference_high=difference_high,
        p=p,
        p_holm=adjusted,
        threshold=cheapest_best(points, budget).threshold,
        curve=tuple(points),
        trial=trial,
        obstacle=_obstacle(trial, records[0].question),
    )


def _obstacle(trial: Trial, question: str) -> str:
    try:
        trial.fits[0].scores([Query(question)])
    except UsageError as error:
        return str(error)
    return ""
