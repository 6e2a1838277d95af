"""Plots of gate calibrations and analyses, by matplotlib."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kcard.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Figures without matplotlib's global state, their colours, and how they are saved.

SIZE = (8.0, 5.0)  # inches
DPI = 150
# Distinguishable with colour blindness (Okabe and Ito, 2008); without yellow, which is pale in print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES = ("-", "--", ":")
GREY = "#777777"


def new_figure() -> "Figure":
    """Return an empty figure. Raises MissingExtra without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plots need matplotlib: pip install 'kcard[plots]'") from None
    return Figure(figsize=SIZE, dpi=DPI)


def style_axes(axes: Any) -> None:
    """Remove the frame, and add faint horizontal grid lines and a legend beside the plot."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


def encode_figure(figure: "Figure", kind: str) -> bytes:
    """Encode the figure as svg or png, without a date, so that equal figures give equal bytes."""
    import matplotlib

    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kcard"}):
        figure.savefig(stream, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return stream.getvalue()


def write_figure(figure: "Figure", path: Path) -> None:
    """Write the figure: as SVG if the file's suffix is .svg, else as PNG. Raises UsageError if that fails."""
    kind = "svg" if path.suffix.lower() == ".svg" else "png"
    try:
        path.expanduser().write_bytes(encode_figure(figure, kind))
    except OSError as error:
        raise UsageError(f"can't write the plot {path}: {error.strerror or error}") from error


@dataclass(frozen=True)
class PlotSeries:
    """A named series of points. `low` and `high`: the interval of each y; empty without intervals."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """Lines over numeric x, or bars over names. `log`: whether the x axis is logarithmic."""

    x: str
    y: str
    series: tuple[PlotSeries, ...]
    kind: Literal["line", "bar"] = "line"
    log: bool = False


def draw_chart(chart: Chart, title: str = "") -> "Figure":
    """Draw a chart. Raises MissingExtra without matplotlib."""
    figure = new_figure()
    axes = figure.add_subplot()
    for number, series in enumerate(chart.series):
        colour = COLOURS[number % len(COLOURS)]
        if chart.kind == "line":
            axes.plot(
                series.x,
                series.y,
                color=colour,
                linestyle=STYLES[number // len(COLOURS) % len(STYLES)],
                linewidth=1.4,
                marker="o" if len(series.x) <= 20 else None,
                label=series.label,
            )
            if series.low:
                axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)
            continue
        # Bars of one name stand side by side; error bars reach down to `low` and up to `high`.
        width = 0.8 / len(chart.series)
        places = [place + (number - (len(chart.series) - 1) / 2) * width for place in range(len(series.x))]
        errors = None
        if series.low:
            below = [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)]
            errors = [below, [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)]]
        axes.bar(places, series.y, width, color=colour, label=series.label, yerr=errors)
        names = [str(name) for name in series.x]
        axes.set_xticks(range(len(series.x)), names, rotation=30, ha="right", fontsize=8)
    if chart.log:
        axes.set_xscale("log")
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.set_title(title, fontsize=10, loc="left")
    style_axes(axes)
    figure.tight_layout()
    return figure
