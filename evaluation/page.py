"""The browse table as one self-contained web page: no script is needed to read it, nothing is fetched."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.errors import UsageError
from kcard.evaluation.browse import CardReport
from kcard.evaluation.plot import plot
from kcard.evaluation.timeline import timeline
from kcard.files import write_text

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["render", "write_page"]

TEMPLATE = Path(__file__).with_name("browse.html")
UNITS = ("B", "kB", "MB", "GB", "TB")


def render(reports: Sequence[CardReport], title: str = "Knowledge cards") -> str:
    """The page as HTML. Whatever a card says is escaped: a card's text is not to be trusted."""
    return _template().render(title=title, reports=reports, plot=plot, timeline=timeline, size=_size)


def write_page(reports: Sequence[CardReport], path: Path | str, title: str = "Knowledge cards") -> Path:
    """Write the page to `path`, whole or not at all; UsageError where that can't be written."""
    path = Path(path).expanduser()
    try:
        write_text(path, render(reports, title))
    except OSError as error:
        raise UsageError(f"can't write the page {path}: {error.strerror or error}") from error
    return path


def _template() -> "Template":
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def _size(count: int) -> str:
    """Bytes for people: 4.6 MB."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {UNITS[unit]}" if value >= 99.5 or unit == 0 else f"{value:.1f} {UNITS[unit]}"
