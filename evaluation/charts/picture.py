"""Charts as files: SVG with its own style sheet, light or dark as its reader's system is."""

from pathlib import Path

from kcard.errors import UsageError
from kcard.evaluation.charts.chart import Chart
from kcard.evaluation.page import filled, written

__all__ = ["svg", "write_pictures"]

FOLDER = Path(__file__).parent


def svg(chart: Chart) -> str:
    """A chart as an SVG document."""
    style = "svg { background: var(--panel); }\n" + "\n".join(
        (FOLDER / name).read_text(encoding="utf-8") for name in ("palette.css", "charts.css")
    )
    return filled(FOLDER / "picture.svg", chart=chart, style=style).strip() + "\n"


def write_pictures(charts: tuple[Chart, ...], path: Path) -> list[Path]:
    """Write the charts: one to `path`, several to NAME-1.svg, NAME-2.svg and so on.

    Raises UsageError where there is none, and where a file can't be written.
    """
    if not charts:
        raise UsageError("this analysis has no chart: leave out --plot")
    if len(charts) == 1:
        return [written(path, svg(charts[0]))]
    return [
        written(path.with_name(f"{path.stem}-{number}{path.suffix}"), svg(chart))
        for number, chart in enumerate(charts, 1)
    ]
