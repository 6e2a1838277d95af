"""Charts: what they show, whatever their labels say."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kcard.errors import UsageError
from kcard.evaluation.plots import (
    Chart,
    Curves,
    Heat,
    Intervals,
    PlotPoint,
    PlotSeries,
    draw_chart,
    encode_figure,
    write_charts,
)
from kcard.evaluation.records import Mean

ODD = "$\\frac{ <b>&\x1b\x00 月"
MEANS = (Mean(0.5, 0.4, 0.6), Mean(0.7, 0.7, 0.75))
POINTS = tuple(map(PlotPoint, ("direct", ODD), MEANS))
SERIES = tuple(PlotSeries.of(label, [*enumerate(MEANS)]) for label in (ODD, "b"))
CHARTS: tuple[Chart, ...] = (
    Intervals("accuracy", POINTS, 0.5, signed=True),
    Heat("cards", ("moons", ODD), ("a", "b"), ((0.25, None), (1.0, 0.0))),
    Curves("cards", "accuracy", SERIES, ticks=("none", ODD)),
    Curves("calls", "accuracy", SERIES, "dot"),
    Curves("task", "accuracy", (PlotSeries("a", ("x", ODD), (0.3, 0.6), (0.2, 0.5), (0.4, 0.7)),), "bar"),
    Curves("share", "accuracy", (PlotSeries("a", (0.1, 1.0), (0.3, 0.6)), PlotSeries(ODD, (), ())), log=True),
)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: type(chart).__name__)
def test_a_chart_is_a_picture_with_its_labels_as_text(chart: Chart) -> None:
    picture = encode_figure(draw_chart(chart), "svg")
    assert picture == encode_figure(draw_chart(chart), "svg")
    words = " ".join(ET.fromstring(picture).itertext())
    assert "$\\frac{ <b>&   月" in words
    for expected in {"Intervals": ("+0.500", "+0.700"), "Heat": ("0.25", "1.00", "0.00")}.get(
        type(chart).__name__, ()
    ):
        assert expected in words


def test_several_charts_are_numbered_files_and_none_is_refused(tmp_path: Path) -> None:
    assert write_charts(CHARTS[:1], tmp_path / "one.png") == [tmp_path / "one.png"]
    assert [path.name for path in write_charts(CHARTS[:2], tmp_path / "two.svg")] == [
        "two-1.svg",
        "two-2.svg",
    ]
    with pytest.raises(UsageError, match="no chart: leave out --plot"):
        write_charts((), tmp_path / "none.svg")
    with pytest.raises(UsageError, match=r"can't write the plot .*: No such file or directory"):
        write_charts(CHARTS[:1], tmp_path / "nowhere" / "one.svg")
