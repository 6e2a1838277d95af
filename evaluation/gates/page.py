"""The report of a calibration as one self-contained web page: no script, nothing is fetched."""

from pathlib import Path
from typing import TYPE_CHECKING

from kcard.evaluation.gates.calibration import Calibration
from kcard.evaluation.gates.plot import svg
from kcard.evaluation.page import filled, written

if TYPE_CHECKING:
    from kcard.evaluation.gates.choice import Recommendation

__all__ = ["render", "write_page"]

TEMPLATE = Path(__file__).with_name("calibration.html")
TITLE = "Which gate for these questions?"


def render(found: Calibration, choice: "Recommendation", title: str = TITLE) -> str:
    """The page as HTML. Raises MissingExtra without matplotlib."""
    return filled(
        TEMPLATE,
        title=title,
        text=choice.text,
        chosen=choice.gate.gate if choice.gate else "",
        found=found,
        rows=sorted(found.rows, key=lambda row: -row.outcome.accuracy),
        picture=svg(found),
    )


def write_page(found: Calibration, choice: "Recommendation", path: Path | str) -> Path:
    """Write the page, whole or not at all; UsageError where that can't be written."""
    return written(path, render(found, choice))
