"""Charts as SVG geometry: factuality and recall over versions, and the distribution of scores."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Bar", "Histogram", "History", "Point", "Series", "histogram", "history"]

WIDTH, HEIGHT = 640.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 14.0, 12.0, 28.0
BINS = 10


@dataclass(frozen=True)
class Point:
    """A point of a series: its place, its value in [0, 1] and the number of its version."""

    x: float
    y: float
    value: float
    number: int


@dataclass(frozen=True)
class Series:
    """A line; `name` is its class in the style sheet: verified, declared or recall."""

    name: str
    points: Sequence[Point]

    @property
    def path(self) -> str:
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


@dataclass(frozen=True)
class History:
    """Series over versions; `labels` are x and number of versions, `lines` y and value of the grid."""

    series: Sequence[Series]
    labels: Sequence[tuple[float, int]]
    lines: Sequence[tuple[float, float]]
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True)
class Bar:
    """A bar of a histogram: the range that it counts, how many, and its rectangle."""

    low: float
    high: float
    count: int
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Histogram:
    """A histogram of scores in [0, 1]."""

    bars: Sequence[Bar]
    base: float
    width: float = WIDTH
    height: float = 138.0


def history(versions: Sequence[tuple[int, dict[str, float | None]]]) -> History | None:
    """Values by series of each version, oldest first; None if fewer than two versions have any."""
    known = [(number, values) for number, values in versions if any(v is not None for v in values.values())]
    if len(known) < 2:
        return None
    step = (WIDTH - LEFT - RIGHT - 40) / (len(known) - 1)
    places = {number: LEFT + 20 + step * place for place, (number, _) in enumerate(known)}
    names = [name for name in known[0][1] if any(values[name] is not None for _, values in known)]
    series = [
        Series(
            name,
            [
                Point(places[number], _height(value), value, number)
                for number, values in known
                if (value := values[name]) is not None
            ],
        )
        for name in names
    ]
    every = -(-len(known) // 12)
    labels = [(places[number], number) for place, (number, _) in enumerate(known) if place % every == 0]
    return History(series, labels, [(_height(value), value) for value in (0.0, 0.25, 0.5, 0.75, 1.0)])


def histogram(scores: Sequence[float]) -> Histogram | None:
    """How many of the scores are in each tenth; None without scores."""
    if not scores:
        return None
    counts = [0] * BINS
    for score in scores:
        counts[min(int(score * BINS), BINS - 1)] += 1
    most, base, room = max(counts), 112.0, 86.0
    width = (WIDTH - LEFT - RIGHT) / BINS
    bars = [
        Bar(
            place / BINS,
            (place + 1) / BINS,
            count,
            LEFT + place * width + 3,
            base - room * count / most,
            width - 6,
            room * count / most,
        )
        for place, count in enumerate(counts)
    ]
    return Histogram(bars, base)


def _height(value: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(value, 0.0), 1.0))
