"""Charts of evaluations, calibrations and analyses, drawn by matplotlib, and the web pages that contain them."""

import base64
import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.records import Mean
from kcard.io import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What charts show. `alt` is the text for screen readers.


@dataclass(frozen=True)
class PlotPoint:
    """A measurement: its name, and its mean with the interval."""

    label: str
    mean: Mean


@dataclass(frozen=True)
class Intervals:
    """One row for each point: the mean as a dot, its interval as a line.

    reference  a value to compare with, drawn as a dashed line; None: no line
    signed     whether the values are differences, shown with their sign
    """

    label: str
    points: tuple[PlotPoint, ...]
    reference: float | None = None
    signed: bool = False

    @property
    def alt(self) -> str:
        return f"{self.label}; the numbers are in the table"


@dataclass(frozen=True)
class Heat:
    """A table of shares in [0, 1] as shaded cells; None: not measured."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]

    @property
    def alt(self) -> str:
        return f"{self.title}; the numbers are in the table"


@dataclass(frozen=True)
class PlotSeries:
    """A named series of points. `low` and `high`: the interval of each y; empty without intervals."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @classmethod
    def of(cls, label: str, points: Sequence[tuple[float, Mean]]) -> "PlotSeries":
        """Return a series of means, each at its x."""
        xs, means, lows, highs = [], [], [], []
        for x, mean in points:
            xs.append(x)
            means.append(mean.mean)
            lows.append(mean.low)
            highs.append(mean.high)
        return cls(label, tuple(xs), tuple(means), tuple(lows), tuple(highs))


@dataclass(frozen=True)
class Curves:
    """Lines or dots over numeric x, or bars over names.

    log    whether the x axis is logarithmic
    ticks  labels of x = 0, 1, ...; empty for numbers
    """

    x: str
    y: str
    series: tuple[PlotSeries, ...]
    kind: Literal["line", "dot", "bar"] = "line"
    log: bool = False
    ticks: tuple[str, ...] = ()

    @property
    def alt(self) -> str:
        return f"{self.y} by {self.x}; the numbers are in the table"


Chart: TypeAlias = Intervals | Heat | Curves

# Figures without matplotlib's global state, their colours, and how they are saved.

SIZE = (6.4, 3.8)  # inches
ROW_INCHES = 0.3
DPI = 150
# Distinguishable with colour blindness (Okabe and Ito, 2008); without yellow, which is pale in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES = ("-", "--", ":")
MARKERS = "osD^vP*X"
GREY = "#777777"
MAX_LABEL_CHARACTERS = 27
MAX_MARKED_POINTS = 20  # of a line


def _style_axes(axes: Any) -> None:
    """Remove the frame, and add faint horizontal grid lines and a legend beside the plot."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


def encode_figure(figure: "Figure", kind: str) -> bytes:
    """Encode the figure as svg or png, without a date, so that equal figures give equal bytes."""
    metadata = None
    if kind == "svg":
        metadata = {"Date": None}
    stream = io.BytesIO()
    with _drawing():
        figure.savefig(stream, format=kind, metadata=metadata)
    return stream.getvalue()


def write_figure(figure: "Figure", path: Path) -> None:
    """Write the figure: as SVG if the file's suffix is .svg, else as PNG. Raises UsageError if that fails."""
    kind = "png"
    if path.suffix.lower() == ".svg":
        kind = "svg"
    try:
        path.expanduser().write_bytes(encode_figure(figure, kind))
    except OSError as error:
        raise UsageError(f"can't write the plot {path}: {error.strerror or error}") from error


@contextmanager
def _drawing() -> Iterator[None]:
    """Draw texts as they are: labels come from users, so that none is a formula, and any script may occur."""
    import matplotlib

    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "kcard", "text.parse_math": False}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def shorten(text: str, most: int = MAX_LABEL_CHARACTERS) -> str:
    """Shorten the text to `most` characters by an ellipsis in its middle."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def _label(text: str) -> str:
    """Return a label without control characters, which no SVG may contain."""
    for character in set(text):
        if not character.isprintable():
            text = text.replace(character, " ")
    return shorten(text)


# How they are drawn.


def draw_chart(chart: Chart, title: str = "") -> "Figure":
    """Draw a chart."""
    from matplotlib.figure import Figure

    width, height = SIZE
    if isinstance(chart, Intervals):
        height = 1.2 + ROW_INCHES * len(chart.points)
    elif isinstance(chart, Heat):
        height = 2.0 + ROW_INCHES * len(chart.rows)
    with _drawing():
        figure = Figure(figsize=(width, height), dpi=DPI)
        axes = figure.add_subplot()
        axes.set_title(title, fontsize=10, loc="left")
        if isinstance(chart, Intervals):
            _draw_intervals(axes, chart)
        elif isinstance(chart, Heat):
            _draw_heat(axes, chart)
        else:
            _draw_curves(axes, chart)
        figure.tight_layout()
    return figure


def _draw_intervals(axes: Any, chart: Intervals) -> None:
    places = range(0, -len(chart.points), -1)  # the first on top
    line = PlotSeries.of("", [(place, point.mean) for place, point in zip(places, chart.points, strict=True)])
    axes.errorbar(line.y, line.x, xerr=_error_bars(line.y, line.low, line.high), fmt="o", color=COLOURS[0])
    axes.set_yticks(places, [_label(point.label) for point in chart.points])
    axes.set_ylim(min(places, default=0) - 0.6, 0.6)
    for place, point in zip(places, chart.points, strict=True):
        value = f"{point.mean.mean:.3f}"
        if chart.signed:
            value = f"{point.mean.mean:+.3f}"
        axes.annotate(value, (1.01, place), xycoords=("axes fraction", "data"), va="center")
    if chart.reference is not None:
        axes.axvline(chart.reference, color=GREY, linewidth=1, linestyle="--")
    axes.set_xlabel(chart.label)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)


def _draw_heat(axes: Any, chart: Heat) -> None:
    values = np.array(chart.values, dtype=float)  # nan for None
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1.6, aspect="auto")
    for row, shares in enumerate(chart.values):
        for column, share in enumerate(shares):
            if share is not None:
                axes.text(column, row, f"{share:.2f}", ha="center", va="center", fontsize=8)
    axes.set_yticks(range(len(chart.rows)), [_label(name) for name in chart.rows], fontsize=8)
    _name_ticks(axes, chart.columns)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(_label(chart.title), fontsize=10, loc="left")


def _draw_curves(axes: Any, chart: Curves) -> None:
    width = 0.8 / max(1, len(chart.series))
    for number, series in enumerate(chart.series):
        style: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)]}
        if series.low:
            style["yerr"] = _error_bars(series.y, series.low, series.high)
        if len(chart.series) > 1:
            style["label"] = _label(series.label)
        if chart.kind == "bar":
            # Bars of one name stand side by side.
            shift = (number - (len(chart.series) - 1) / 2) * width
            axes.bar([place + shift for place in range(len(series.x))], series.y, width, **style)
            _name_ticks(axes, [str(name) for name in series.x])
        elif chart.kind == "dot":
            axes.errorbar(series.x, series.y, fmt=MARKERS[number % len(MARKERS)], **style)
        else:
            style["linestyle"] = STYLES[number // len(COLOURS) % len(STYLES)]
            if len(series.x) <= MAX_MARKED_POINTS:
                style["marker"] = "o"
            axes.errorbar(series.x, series.y, linewidth=1.4, markersize=5, **style)
    if chart.ticks:
        _name_ticks(axes, chart.ticks)
    if chart.log:
        axes.set_xscale("log")
    elif chart.kind == "dot":
        axes.set_xlim(left=min(0.0, axes.get_xlim()[0]))
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    _style_axes(axes)


def _error_bars(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[list[float]]:
    """Return how far the intervals reach below and above the values."""
    below = np.fmax(0.0, np.subtract(values, low))
    above = np.fmax(0.0, np.subtract(high, values))
    return [below.tolist(), above.tolist()]


def _name_ticks(axes: Any, names: Sequence[str]) -> None:
    axes.set_xticks(range(len(names)), [_label(name) for name in names], rotation=30, ha="right", fontsize=8)


# Charts as files, and as pictures of a page.


def write_charts(charts: Sequence[Chart], path: Path) -> list[Path]:
    """Write a single chart to `path`, several charts to NAME-1.svg, NAME-2.svg and so on; SVG, or PNG by the suffix.

    Raises UsageError if there is no chart, or a file can't be written.
    """
    if not charts:
        raise UsageError("this analysis has no chart: leave out --plot")
    paths = [path]
    if len(charts) > 1:
        paths = [path.with_name(f"{path.stem}-{number}{path.suffix}") for number in range(1, len(charts) + 1)]
    for chart, target in zip(charts, paths, strict=True):
        write_figure(draw_chart(chart), target)
    return paths


def picture(figure: "Figure") -> str:
    """Return a figure as a data: URL for an <img>, in which nothing runs."""
    return "data:image/svg+xml;base64," + base64.b64encode(encode_figure(figure, "svg")).decode()


# Pages.

TEMPLATES = Path(__file__).parent


def render_template(template: Path, **values: Any) -> str:
    """Render a template below this folder as HTML. All values are escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(shortened=shorten, drawn=lambda chart: picture(draw_chart(chart)))
    return environment.get_template(template.relative_to(TEMPLATES).as_posix()).render(values)


def write_document(path: Path | str, page: str) -> Path:
    """Write a page to `path`, atomically. Raises UsageError if that fails."""
    path = Path(path).expanduser()
    try:
        write_text(path, page)
    except OSError as error:
        raise UsageError(f"can't write the page {path}: {error.strerror or error}") from error
    return path
