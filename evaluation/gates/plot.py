"""The cost/accuracy curves of a calibration as a picture."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import MissingExtra, UsageError
from kcard.evaluation.gates.calibration import Calibration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "png", "require", "svg", "write_png"]

SIZE = (8.0, 5.0)  # inches
DPI = 150
# Tells apart for people who see no red or no green (Okabe and Ito, 2008); no yellow, which paper swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES = ("-", "--", ":")
GREY = "#777777"


def draw(found: Calibration, title: str = "") -> "Figure":
    """One line a gate: accuracy against the share of questions that ask cards; a dot where the gate is used.

    The dots are the figures of the table (thresholds chosen without the record that is judged), so they may lie below
    their line, on which the best of all thresholds would be picked afterwards. Raises MissingExtra without matplotlib.
    """
    figure = _figure()
    axes = figure.add_subplot()
    base = found.baselines
    axes.plot([0, 1], [base.never, base.always], color=GREY, linewidth=1, label="random")
    axes.plot([0, 1], [base.oracle] * 2, color=GREY, linewidth=1, linestyle=(0, (1, 3)), label="oracle")
    for number, row in enumerate(found.rows):
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": STYLES[number // len(COLOURS) % len(STYLES)],
        }
        axes.plot(
            [p.share for p in row.curve],
            [p.accuracy for p in row.curve],
            linewidth=1.4,
            label=row.gate,
            **style,
        )
        axes.plot(
            [row.outcome.share],
            [row.outcome.accuracy],
            "o",
            color=style["color"],
            markeredgecolor="white",
            zorder=3,
        )
    for name, at, level, side in (("never", 0, base.never, "left"), ("always", 1, base.always, "right")):
        axes.annotate(
            name, (at, level), (0, -14), textcoords="offset points", ha=side, color=GREY, fontsize=8
        )
    if found.budget < 1:
        axes.axvline(found.budget, color=GREY, linewidth=0.8, linestyle="--")
        axes.annotate(
            "budget", (found.budget, 0.01), xycoords=("data", "axes fraction"), color=GREY, fontsize=8
        )
    _label(axes, title or f"{found.records} records, {found.folds} folds")
    figure.tight_layout()
    return figure


def png(found: Calibration, title: str = "") -> bytes:
    return _saved(draw(found, title), "png")


def svg(found: Calibration, title: str = "") -> str:
    """The picture as an element for a page, its words as text."""
    text = _saved(draw(found, title), "svg").decode()
    return text[text.index("<svg") :]


def write_png(found: Calibration, path: Path, title: str = "") -> None:
    """Raises UsageError where the file can't be written."""
    data = png(found, title)
    try:
        path.expanduser().write_bytes(data)
    except OSError as error:
        raise UsageError(f"can't write the plot {path}: {error.strerror or error}") from error


def require() -> None:
    """Raise MissingExtra where nothing can be drawn."""
    _figure()


def _figure() -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plots need matplotlib: pip install 'kcard[plots]'") from None
    return Figure(figsize=SIZE, dpi=DPI)


def _label(axes: Any, title: str) -> None:
    axes.set_xlabel("share of the questions that ask cards (cost)")
    axes.set_ylabel("accuracy")
    axes.set_xlim(-0.01, 1.01)
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


def _saved(figure: "Figure", kind: str) -> bytes:
    """Without a date, so that equal calibrations give equal bytes."""
    import matplotlib

    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kcard"}):
        figure.savefig(stream, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return stream.getvalue()
