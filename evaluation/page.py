"""The browse table as one self-contained web page: no script is needed to read it, nothing is fetched."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kcard.errors import UsageError
from kcard.evaluation.browse import CardReport
from kcard.evaluation.charts.chart import shortened
from kcard.evaluation.plot import plot
from kcard.evaluation.timeline import timeline
from kcard.files import write_text
from kcard.sizes import shown_size

__all__ = ["filled", "render", "write_page", "written"]

TEMPLATE = Path(__file__).with_name("browse.html")


def render(reports: Sequence[CardReport], title: str = "Knowledge cards") -> str:
    """The page as HTML. Whatever a card says is escaped: a card's text is not to be trusted."""
    return filled(TEMPLATE, title=title, reports=reports, plot=plot, timeline=timeline, size=shown_size)


def write_page(reports: Sequence[CardReport], path: Path | str, title: str = "Knowledge cards") -> Path:
    """Write the page to `path`, whole or not at all; UsageError where that can't be written."""
    return written(path, render(reports, title))


def filled(template: Path, **values: Any) -> str:
    """A page of this folder as HTML. Whatever a value says is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["shortened"] = shortened
    return environment.get_template(template.relative_to(TEMPLATE.parent).as_posix()).render(values)


def written(path: Path | str, page: str) -> Path:
    """Write a page, whole or not at all; UsageError where that can't be done."""
    path = Path(path).expanduser()
    try:
        write_text(path, page)
    except OSError as error:
        raise UsageError(f"can't write the page {path}: {error.strerror or error}") from error
    return path
