"""The one comparison: a gate's score against a threshold."""

from collections.abc import Sequence

from kcard.answer import Decision
from kcard.protocols import Gate

__all__ = ["THRESHOLD", "decide"]

THRESHOLD = 0.5


def decide(gate: Gate, name: str, questions: Sequence[str], threshold: float = THRESHOLD) -> list[Decision]:
    """Knowledge is sought where the score is below the threshold (Thrust, section 2.3)."""
    scores = (float(score) for score in gate.knows(questions))
    return [Decision(name, round(score, 6), fired=score < threshold) for score in scores]
