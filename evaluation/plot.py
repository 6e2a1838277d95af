"""Geometry of the page's plots: numbers in, rectangles and positions out. How they look is the template's."""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.evaluation.histogram import counts

__all__ = ["Bar", "Plot", "plot"]


@dataclass(frozen=True)
class Bar:
    """A rectangle in the plot's units, and what it stands for: `count` scores in [low, high)."""

    x: float
    y: float
    width: float
    height: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Plot:
    """A histogram of scores in [0, 1]. `mean_x`: where the mean lies; None where there are no scores."""

    width: float
    height: float
    bars: tuple[Bar, ...]
    most: int
    mean_x: float | None


def plot(scores: Sequence[float], bins: int = 20, width: float = 400, height: float = 120) -> Plot:
    """Bars of equal width, the fullest as high as the plot; ranges that hold nothing have no bar."""
    found = counts(scores, bins)
    most, step, gap = max(found), width / bins, min(2.0, width / bins / 6)
    bars = []
    for i, n in enumerate(found):
        if n:
            tall = max(height * n / most, 1.5)
            bars.append(
                Bar(
                    _r(i * step + gap / 2),
                    _r(height - tall),
                    _r(step - gap),
                    _r(tall),
                    i / bins,
                    (i + 1) / bins,
                    n,
                )
            )
    mean = _r(sum(scores) / len(scores) * width) if scores else None
    return Plot(width, height, tuple(bars), most, mean)


def _r(value: float) -> float:
    return round(value, 2)
