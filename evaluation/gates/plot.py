"""The cost/accuracy curves of a calibration as a picture."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.evaluation.figure import COLOURS, GREY, STYLES, bare, new_figure, saved, write
from kcard.evaluation.gates.calibration import Calibration

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw", "png", "require", "svg", "write_plot"]


def draw(found: Calibration, title: str = "") -> "Figure":
    """One line a gate: accuracy against the share of questions that ask cards; a dot where the gate is used.

    The dots are the figures of the table (thresholds chosen without the record that is judged), so they may lie below
    their line, on which the best of all thresholds would be picked afterwards. Raises MissingExtra without matplotlib.
    """
    figure = new_figure()
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
    return saved(draw(found, title), "png")


def svg(found: Calibration, title: str = "") -> str:
    """The picture as an element for a page, its words as text."""
    text = saved(draw(found, title), "svg").decode()
    return text[text.index("<svg") :]


def write_plot(found: Calibration, path: Path, title: str = "") -> None:
    """Raises UsageError where the file can't be written."""
    write(draw(found, title), path)


def require() -> None:
    """Raise MissingExtra where nothing can be drawn."""
    new_figure()


def _label(axes: Any, title: str) -> None:
    axes.set_xlabel("share of the questions that ask cards (cost)")
    axes.set_ylabel("accuracy")
    axes.set_xlim(-0.01, 1.01)
    axes.set_title(title, fontsize=10, loc="left")
    bare(axes)
