"""What a gate's decisions come to: accuracy and cost, beside what no gate needs to know anything for."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kcard.gates.record import Record

__all__ = ["Floats", "GateOutcome", "both_ways", "outcomes"]

Floats = npt.NDArray[np.float64]
Seeks = npt.NDArray[np.bool_]
DIGITS = 6


@dataclass(frozen=True)
class GateOutcome:
    """Shares and accuracies in [0, 1], over every record, those that were wrong both ways included.

    accuracy             mean of correct_with where the gate seeks knowledge, of correct_without elsewhere
    share                of the questions that seek
    beneficial_guidance  among records whose outcome differs with and without cards, the share that the gate sends the
                         better way (SKR, section 5); None where there is no such record
    over_asking          share of the questions that seek although the answer without cards is as good
    under_asking         share of the questions that do not seek although cards would improve the answer
    never, always        accuracy without any cards, and with cards for every question
    oracle               accuracy of a gate that is always right
    random_same_share    expected accuracy where the same share of the questions seeks, drawn at random
    """

    n: int
    accuracy: float
    share: float
    beneficial_guidance: float | None
    over_asking: float
    under_asking: float
    never: float
    always: float
    oracle: float
    random_same_share: float

    @classmethod
    def of(cls, records: Sequence[Record], seeks: Seeks) -> "GateOutcome":
        """`seeks`: shape (n,), whether the gate sends each record to the cards."""
        without, with_ = both_ways(records)
        share, never, always = float(seeks.mean()), float(without.mean()), float(with_.mean())
        differs = without != with_
        right = seeks[differs] == (with_ > without)[differs]
        return cls(
            n=len(records),
            accuracy=float(outcomes(records, seeks).mean()),
            share=share,
            beneficial_guidance=float(right.mean()) if right.size else None,
            over_asking=float((seeks & (without >= with_)).mean()),
            under_asking=float((~seeks & (without < with_)).mean()),
            never=never,
            always=always,
            oracle=float(np.maximum(without, with_).mean()),
            random_same_share=(1 - share) * never + share * always,
        )

    def to_json(self) -> dict[str, Any]:
        return {key: round(v, DIGITS) if isinstance(v, float) else v for key, v in asdict(self).items()}


def both_ways(records: Sequence[Record]) -> tuple[Floats, Floats]:
    """How right each answer was without cards, and with them; shape (n,) each."""
    without = np.array([record.correct_without for record in records], dtype=np.float64)
    return without, np.array([record.correct_with for record in records], dtype=np.float64)


def outcomes(records: Sequence[Record], seeks: Seeks) -> Floats:
    """How right the answer to each record is under the gate's decisions, shape (n,)."""
    without, with_ = both_ways(records)
    return np.where(seeks, with_, without)
