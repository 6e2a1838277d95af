"""Cost against accuracy: what comes out where the questions of the lowest scores seek knowledge (Thrust, section 4)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kcard.evaluation.gates.outcome import Floats, both_ways
from kcard.gates.record import Record

__all__ = ["Point", "cheapest_best", "curve"]


class Point(NamedTuple):
    """`share` of the questions seek, those with a score below `threshold`; `accuracy` is that of all questions."""

    share: float
    accuracy: float
    threshold: float


def curve(records: Sequence[Record], scores: Floats) -> list[Point]:
    """From never (share 0) to always (share 1), a point between any two scores; equal scores go together.

    The first threshold is -inf and the last inf; between two points, sampler at random gives the straight line.
    """
    without, with_ = both_ways(records)
    order = np.argsort(scores, kind="stable")
    ordered = np.asarray(scores, dtype=np.float64)[order]
    gains = np.concatenate([[0.0], np.cumsum((with_ - without)[order])])
    ends = [i for i in range(1, len(ordered)) if ordered[i] > ordered[i - 1]]
    inner = [((ordered[i - 1] + ordered[i]) / 2, i) for i in ends]
    places = [(-np.inf, 0), *inner, (np.inf, len(ordered))]
    start, n = without.sum(), len(ordered)
    return [Point(i / n, float(start + gains[i]) / n, float(threshold)) for threshold, i in places]


def cheapest_best(points: Sequence[Point], budget: float = 1.0) -> Point:
    """The point of the highest accuracy that lets at most `budget` of the questions seek; of equals, the fewest."""
    held = [point for point in points if point.share <= budget + 1e-12]
    return max(held, key=lambda point: (round(point.accuracy, 12), -point.share))
