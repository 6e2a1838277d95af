"""Charts as SVG geometry: figures over versions with their intervals, and the distribution of scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kcard.hub.values import ScoreEstimate

WIDTH, HEIGHT = 640.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 14.0, 12.0, 28.0
BINS = 10
# Series of one version stand beside each other, so that their intervals do not hide each other.
NUDGE = 9.0


@dataclass(frozen=True)
class HistoryPoint:
    """A point of a series at (x, y), with its interval from y `low` up to y `high`; None: unknown.

    estimate  the value in [0, 1] with its sample
    number    that of the version
    """

    x: float
    y: float
    low: float | None
    high: float | None
    estimate: ScoreEstimate
    number: int


@dataclass(frozen=True)
class HistorySeries:
    """A line; `name` is its class in the style sheet: measured, declared or recall."""

    name: str
    points: Sequence[HistoryPoint]

    @property
    def path(self) -> str:
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


@dataclass(frozen=True)
class History:
    """Series over versions; `labels` are x and number of versions, `lines` y and value of the grid."""

    series: Sequence[HistorySeries]
    labels: Sequence[tuple[float, int]]
    lines: Sequence[tuple[float, float]]
    width: float = WIDTH
    height: float = HEIGHT


@dataclass(frozen=True)
class ChartBar:
    """A bar of a histogram: its range, its count, and its rectangle."""

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

    bars: Sequence[ChartBar]
    base: float
    width: float = WIDTH
    height: float = 138.0


def make_history(versions: Sequence[tuple[int, Mapping[str, ScoreEstimate | None]]]) -> History | None:
    """Return the chart of the estimates by series of each version, oldest first; None if fewer than two versions have
    any.
    """
    measured = [(number, values) for number, values in versions if any(values.values())]
    if len(measured) < 2:
        return None
    step = (WIDTH - LEFT - RIGHT - 60) / (len(measured) - 1)
    places = {number: LEFT + 30 + step * place for place, (number, _) in enumerate(measured)}
    names = [name for name in measured[0][1] if any(values[name] for _, values in measured)]
    series = []
    for place, name in enumerate(names):
        shift = (place - (len(names) - 1) / 2) * NUDGE
        points = [
            HistoryPoint(
                places[number] + shift,
                _y_of(estimate.value),
                None if estimate.low is None else _y_of(estimate.low),
                None if estimate.high is None else _y_of(estimate.high),
                estimate,
                number,
            )
            for number, values in measured
            if (estimate := values[name]) is not None
        ]
        series.append(HistorySeries(name, points))
    every = -(-len(measured) // 12)
    labels = [(places[number], number) for place, (number, _) in enumerate(measured) if place % every == 0]
    return History(series, labels, [(_y_of(value), value) for value in (0.0, 0.25, 0.5, 0.75, 1.0)])


def make_histogram(scores: Sequence[float]) -> Histogram | None:
    """Return how many of the scores are in each tenth; None without scores."""
    if not scores:
        return None
    counts = [0] * BINS
    for score in scores:
        counts[min(int(score * BINS), BINS - 1)] += 1
    most, base, room = max(counts), 112.0, 86.0
    width = (WIDTH - LEFT - RIGHT) / BINS
    bars = [
        ChartBar(
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


def _y_of(value: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(max(value, 0.0), 1.0))
