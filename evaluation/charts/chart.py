"""Charts as SVG, and the web pages that contain them.

Charts compute the geometry, in units of about one pixel; templates draw them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.browse import CardReport, lay_out_histogram, lay_out_timeline
from kcard.evaluation.records import Mean
from kcard.io import shown_size, write_text

# Axes.

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """A linear axis with its ticks, from `start` to `end` in the picture's units; `end` may be less than `start`."""

    ticks: tuple[float, ...]
    start: float
    end: float

    @classmethod
    def over(
        cls,
        values: Iterable[float],
        start: float,
        end: float,
        *,
        count: int = 5,
    ) -> "Axis":
        """Return an axis with about `count` round ticks over the range of the values."""
        finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        if high - low < 1e-9:
            low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
        rough = (high - low) / count or 1.0
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(s for s in STEPS if s * size >= rough - 1e-12) * size
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return cls(tuple(round(step * i, 10) for i in range(first, last + 1)), start, end)

    def at(self, value: float) -> float:
        """Return the position of a value, clipped to the ends of the axis."""
        low, high = self.ticks[0], self.ticks[-1]
        share = min(max((value - low) / (high - low), 0.0), 1.0)
        return round(self.start + share * (self.end - self.start), 2)

    def named(self, tick: float) -> str:
        """Format a tick as text."""
        return f"{tick:,.10g}"


WIDTH = 520.0
LABEL = 168.0
LEFT = 54.0  # room for the numbers of the y axis
LABEL_CHARACTERS = 27
ROW = 26.0
TOP, BOTTOM = 12.0, 40.0


def shorten(text: str, most: int = LABEL_CHARACTERS) -> str:
    """Shorten the text to `most` characters by an ellipsis in its middle."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


@dataclass(frozen=True)
class PlotPoint:
    """A measurement: its name, its mean with the interval and, in a scatter plot or line, its x."""

    label: str
    mean: Mean
    x: float = 0.0


@dataclass(frozen=True)
class Intervals:
    """One row for each point: the mean as a dot, its interval as a line.

    alt        text for screen readers
    reference  a value to compare with, drawn as a dashed line; None: no line
    signed     whether the values are differences, shown with their sign
    """

    alt: str
    points: tuple[PlotPoint, ...]
    label: str
    reference: float | None = None
    signed: bool = False
    kind: str = "intervals"

    @property
    def width(self) -> float:
        return WIDTH

    @property
    def height(self) -> float:
        return TOP + ROW * len(self.points) + BOTTOM

    @property
    def base(self) -> float:
        """The y of the axis."""
        return self.height - BOTTOM

    @cached_property
    def axis(self) -> Axis:
        ends = [end for point in self.points for end in (point.mean.low, point.mean.high)]
        return Axis.over(ends, LABEL + 10, WIDTH - 52)

    def y(self, row: int) -> float:
        return TOP + ROW * (row + 0.5)


@dataclass(frozen=True)
class PlacedPoint:
    """A point of a scatter plot and the position of its label, moved so that labels do not overlap."""

    point: PlotPoint
    x: float
    y: float
    label_x: float
    label_y: float
    anchor: str


@dataclass(frozen=True)
class Scatter:
    """Each point's mean, with its interval, against its x."""

    alt: str
    points: tuple[PlotPoint, ...]
    x_label: str
    y_label: str
    kind: str = "scatter"
    width: float = WIDTH
    height: float = 300.0
    left: float = LEFT

    @cached_property
    def x_axis(self) -> Axis:
        return Axis.over([0.0, *(point.x for point in self.points)], LEFT, WIDTH - 24)

    @cached_property
    def y_axis(self) -> Axis:
        ends = [end for point in self.points for end in (point.mean.low, point.mean.high)]
        return Axis.over(ends, self.height - 46, 14.0)

    @property
    def placed(self) -> tuple[PlacedPoint, ...]:
        """The points, with their labels on the side with more room, moved up or down past labels already placed."""
        placed: list[PlacedPoint] = []
        for point in sorted(self.points, key=lambda point: -point.mean.mean):
            x, y = self.x_axis.at(point.x), self.y_axis.at(point.mean.mean)
            # The label's side and width.
            left = x > self.width * 0.6
            anchor, label_x = ("end", x - 9) if left else ("start", x + 9)
            width = 6.4 * len(shorten(point.label))
            span = (label_x - width, label_x) if left else (label_x, label_x + width)
            # The height nearest to y, within the plot, at which it overlaps no other label.
            taken = []
            for other in placed:
                other_width = 6.4 * len(shorten(other.point.label))
                low = other.label_x - other_width if other.anchor == "end" else other.label_x
                if low < span[1] + 4 and span[0] < low + other_width + 4:
                    taken.append(other.label_y)
            tries = [y + sign * step * 3 for step in range(80) for sign in (1, -1)]
            inside = [t for t in tries if 14 <= t <= self.height - 50]
            free = [t for t in inside if all(abs(t - label_y) >= 14 for label_y in taken)]
            height = round(free[0] if free else y, 2)
            placed.append(PlacedPoint(point, x, y, round(label_x, 2), height, anchor))
        return tuple(placed)


@dataclass(frozen=True)
class PlotLine:
    """A series: points in the order of their x."""

    label: str
    points: tuple[PlotPoint, ...]


@dataclass(frozen=True)
class Lines:
    """Series of means with their intervals. `ticks`: labels of x = 0, 1, ...; empty for a numeric x axis."""

    alt: str
    series: tuple[PlotLine, ...]
    x_label: str
    y_label: str
    ticks: tuple[str, ...] = ()
    kind: str = "lines"
    width: float = WIDTH
    left: float = LEFT

    @property
    def slanted(self) -> bool:
        """Whether the labels of the x axis are too wide to be horizontal."""
        return sum(7 * min(len(name), 16) + 12 for name in self.ticks) > WIDTH - LEFT

    @property
    def height(self) -> float:
        return 350.0 if self.slanted else 300.0

    @property
    def bottom(self) -> float:
        """Room below the x axis."""
        return 96.0 if self.slanted else 46.0

    @property
    def top(self) -> float:
        """The y of the plot's top, below the labels of the series."""
        return 14.0 + (18 * len(self.series) if len(self.series) > 1 else 0)

    @cached_property
    def x_axis(self) -> Axis:
        if self.ticks:
            return Axis(tuple(float(i) for i in range(max(len(self.ticks), 2))), LEFT + 20, WIDTH - 40)
        return Axis.over([point.x for line in self.series for point in line.points], LEFT, WIDTH - 24)

    @cached_property
    def y_axis(self) -> Axis:
        means = [point.mean for line in self.series for point in line.points]
        return Axis.over([end for m in means for end in (m.low, m.high)], self.height - self.bottom, self.top)

    def x(self, point: PlotPoint, line: int) -> float:
        """Return the x of a point of the given line; points of several lines are shifted so that their
        intervals don't overlap."""
        return round(self.x_axis.at(point.x) + 5 * (line - (len(self.series) - 1) / 2), 2)


@dataclass(frozen=True)
class Heat:
    """A table of shares in [0, 1] as shaded cells, below its title; None: not measured."""

    alt: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    title: str = ""
    kind: str = "heat"

    @property
    def cell(self) -> tuple[float, float]:
        """Width and height of a cell."""
        return max(36.0, min(72.0, (WIDTH - LABEL) / max(len(self.columns), 1))), 24.0

    @property
    def head(self) -> float:
        """The height of the title and the slanted column names."""
        return (42 if self.title else 24) + 4.4 * max(
            (len(shorten(name)) for name in self.columns), default=0
        )

    @property
    def width(self) -> float:
        return LABEL + self.cell[0] * len(self.columns) + 70

    @property
    def height(self) -> float:
        return self.head + self.cell[1] * len(self.rows) + 8


Chart = Intervals | Scatter | Lines | Heat


# The browse table as a self-contained web page, which needs no script and no network.

TEMPLATE = Path(__file__).parents[1] / "browse.html"


def render(reports: Sequence[CardReport], title: str = "Knowledge cards") -> str:
    """Render the page as HTML. Cards' texts are escaped, since they are not trusted."""
    return render_template(
        TEMPLATE,
        title=title,
        reports=reports,
        plot=lay_out_histogram,
        timeline=lay_out_timeline,
        size=shown_size,
    )


def write_page(reports: Sequence[CardReport], path: Path | str, title: str = "Knowledge cards") -> Path:
    """Write the page to `path`, atomically. Raises UsageError if that fails."""
    return write_document(path, render(reports, title))


def render_template(template: Path, **values: Any) -> str:
    """Render a template of this folder as HTML. All values are escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["shortened"] = shorten
    return environment.get_template(template.relative_to(TEMPLATE.parent).as_posix()).render(values)


def write_document(path: Path | str, page: str) -> Path:
    """Write a page to `path`, atomically. Raises UsageError if that fails."""
    path = Path(path).expanduser()
    try:
        write_text(path, page)
    except OSError as error:
        raise UsageError(f"can't write the page {path}: {error.strerror or error}") from error
    return path


# Charts as files: SVG with its own style sheet, which follows the system's light or dark theme.

FOLDER = Path(__file__).parent


def svg(chart: Chart) -> str:
    """Render a chart as an SVG document."""
    style = "svg { background: var(--panel); }\n" + "\n".join(
        (FOLDER / name).read_text(encoding="utf-8") for name in ("palette.css", "charts.css")
    )
    return render_template(FOLDER / "picture.svg", chart=chart, style=style).strip() + "\n"


def write_pictures(charts: tuple[Chart, ...], path: Path) -> list[Path]:
    """Write a single chart to `path`, several charts to NAME-1.svg, NAME-2.svg and so on.

    Raises UsageError if there is no chart, or a file can't be written.
    """
    if not charts:
        raise UsageError("this analysis has no chart: leave out --plot")
    if len(charts) == 1:
        return [write_document(path, svg(charts[0]))]
    return [
        write_document(path.with_name(f"{path.stem}-{number}{path.suffix}"), svg(chart))
        for number, chart in enumerate(charts, 1)
    ]
