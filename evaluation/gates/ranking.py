"""How well a gate's scores rank the questions, and how far its probabilities can be believed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kcard.evaluation.gates.cost_curve import curve
from kcard.evaluation.gates.outcome import Floats, both_ways
from kcard.gates.record import Record

__all__ = ["BINS", "SHARES", "GateRanking", "calibration_error"]

SHARES = (0.5, 0.7, 0.85)
BINS = 10
DIGITS = 6


@dataclass(frozen=True)
class GateRanking:
    """Of a gate's scores, whatever its threshold.

    accuracy_at  accuracy where that share of the questions uses cards, those with the lowest scores
    ece          calibration error of its P(right without cards); None where the gate gives no such probability
    """

    accuracy_at: Mapping[float, float]
    ece: float | None = None

    @classmethod
    def of(
        cls, records: Sequence[Record], scores: Floats, correct_without: Floats | None = None
    ) -> "GateRanking":
        """`scores`, `correct_without`: shape (n,). Among equal scores questions are drawn at random."""
        points = curve(records, scores)
        shares, accuracies = [p.share for p in points], [p.accuracy for p in points]
        at = {share: float(np.interp(share, shares, accuracies)) for share in SHARES}
        if correct_without is None:
            return cls(at)
        return cls(at, calibration_error(correct_without, both_ways(records)[0]))

    def to_json(self) -> dict[str, Any]:
        at = {
            f"accuracy_at_{share:.0%}".rstrip("%"): round(v, DIGITS) for share, v in self.accuracy_at.items()
        }
        return {**at, "ece": None if self.ece is None else round(self.ece, DIGITS)}


def calibration_error(probabilities: Floats, truth: Floats, bins: int = BINS) -> float:
    """The expected calibration error, in [0, 1] (Guo et al., 2017, equation 3).

    The mean, over bins of equal width and weighted by their sizes, of how far the mean probability lies from the mean
    of the truth. Both of shape (n,), n at least 1, values in [0, 1].
    """
    bin_ = np.minimum((probabilities * bins).astype(int), bins - 1)
    apart = np.bincount(bin_, weights=probabilities - truth, minlength=bins)
    return float(np.abs(apart).sum() / len(truth))
