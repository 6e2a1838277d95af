"""Geometry of the plot of a card's audits over time: values in, positions out. How they look is the template's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kcard.evaluation.history import PastAudit
from kcard.evaluation.record import Mean

__all__ = ["Dot", "Timeline", "timeline"]

Kind = Literal["faithfulness", "factuality"]
KINDS: tuple[Kind, ...] = ("faithfulness", "factuality")
SHOWN = 12


@dataclass(frozen=True)
class Dot:
    """A mean at (x, y) with its interval from `low` up to `high`, in the plot's units."""

    kind: Kind
    x: float
    y: float
    low: float
    high: float
    mean: Mean


@dataclass(frozen=True)
class Timeline:
    """The last audits, evenly spaced in the order taken.

    columns  for each audit where it stands, and the audit
    lines    between neighbours of one kind whose scores may be compared: kind, x and y of both ends
    """

    width: float
    height: float
    columns: tuple[tuple[float, PastAudit], ...]
    dots: tuple[Dot, ...]
    lines: tuple[tuple[Kind, float, float, float, float], ...]


def timeline(audits: Sequence[PastAudit], width: float = 560, height: float = 110) -> Timeline:
    """Scores in [0, 1] from the bottom to the top; at most SHOWN audits, the latest."""
    shown = audits[-SHOWN:]
    step = width / max(len(shown), 4)
    columns = [(round((i + 0.5) * step, 2), past) for i, past in enumerate(shown)]
    dots: list[Dot] = []
    lines: list[tuple[Kind, float, float, float, float]] = []
    for nudge, kind in zip((-4, 4), KINDS, strict=True):
        before: tuple[PastAudit, Dot] | None = None
        for x, past in columns:
            if (mean := _mean(past, kind)) is None:
                continue
            y, low, high = (round(height * (1 - value), 2) for value in (mean.mean, mean.low, mean.high))
            dot = Dot(kind, x + nudge, y, low, high, mean)
            dots.append(dot)
            if before is not None and past.comparable(before[0]):
                lines.append((kind, before[1].x, before[1].y, dot.x, dot.y))
            before = past, dot
    return Timeline(width, height, tuple(columns), tuple(dots), tuple(lines))


def _mean(past: PastAudit, kind: Kind) -> Mean | None:
    scores = past.audit.faithfulness if kind == "faithfulness" else past.audit.factuality
    return scores.mean if scores else None
