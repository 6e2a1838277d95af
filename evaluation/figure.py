"""What pictures of evaluations share: figures without matplotlib's global state, colours, and how they are saved."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "GREY", "STYLES", "bare", "new_figure", "saved", "write"]

SIZE = (8.0, 5.0)  # inches
DPI = 150
# Tells apart for people who see no red or no green (Okabe and Ito, 2008); no yellow, which paper swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
STYLES = ("-", "--", ":")
GREY = "#777777"


def new_figure() -> "Figure":
    """Raises MissingExtra where nothing can be drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("plots need matplotlib: pip install 'kcard[plots]'") from None
    return Figure(figsize=SIZE, dpi=DPI)


def bare(axes: Any) -> None:
    """Without a frame, with faint horizontal lines behind what is drawn, and the legend beside it."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))


def saved(figure: "Figure", kind: str) -> bytes:
    """The picture as svg or png; without a date, so that equal figures give equal bytes."""
    import matplotlib

    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "kcard"}):
        figure.savefig(stream, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return stream.getvalue()


def write(figure: "Figure", path: Path) -> None:
    """Write the picture: SVG where the file is named so, else PNG. Raises UsageError where it can't be written."""
    kind = "svg" if path.suffix.lower() == ".svg" else "png"
    try:
        path.expanduser().write_bytes(saved(figure, kind))
    except OSError as error:
        raise UsageError(f"can't write the plot {path}: {error.strerror or error}") from error
