"""The picture of an analysis as values, and how matplotlib draws it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kcard.evaluation.figure import COLOURS, STYLES, bare, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Chart", "Series", "drawn"]


@dataclass(frozen=True)
class Series:
    """Points under one name. `low` and `high`: the interval around each y, empty where there is none."""

    label: str
    x: tuple[float | str, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Chart:
    """Lines over numbers, or bars over names. `log`: whether the x axis is logarithmic."""

    x: str
    y: str
    series: tuple[Series, ...]
    kind: Literal["line", "bar"] = "line"
    log: bool = False


def drawn(chart: Chart, title: str = "") -> "Figure":
    """Raises MissingExtra without matplotlib."""
    figure = new_figure()
    axes = figure.add_subplot()
    draw = _line if chart.kind == "line" else _bars
    for number, series in enumerate(chart.series):
        draw(axes, series, number, len(chart.series))
    if chart.log:
        axes.set_xscale("log")
    axes.set_xlabel(chart.x)
    axes.set_ylabel(chart.y)
    axes.set_title(title, fontsize=10, loc="left")
    bare(axes)
    figure.tight_layout()
    return figure


def _line(axes: Any, series: Series, number: int, _: int) -> None:
    colour, style = COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
    marker = "o" if len(series.x) <= 20 else None
    axes.plot(
        series.x, series.y, color=colour, linestyle=style, linewidth=1.4, marker=marker, label=series.label
    )
    if series.low:
        axes.fill_between(series.x, series.low, series.high, color=colour, alpha=0.15, linewidth=0)


def _bars(axes: Any, series: Series, number: int, of: int) -> None:
    width = 0.8 / of
    places = [place + (number - (of - 1) / 2) * width for place in range(len(series.x))]
    axes.bar(
        places,
        series.y,
        width,
        color=COLOURS[number % len(COLOURS)],
        label=series.label,
        yerr=_errors(series),
    )
    axes.set_xticks(
        range(len(series.x)), [str(name) for name in series.x], rotation=30, ha="right", fontsize=8
    )


def _errors(series: Series) -> list[Sequence[float]] | None:
    if not series.low:
        return None
    below = [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)]
    return [below, [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)]]
