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
    Lines,
    PlotLine,
    PlotPoint,
    PlotSeries,
    Scatter,
    draw_chart,
    encode_figure,
    write_charts,
)
from kcard.evaluation.records import Mean

ODD = "$\\frac{ <b>&\x1b\x00 月"
POINTS = (PlotPoint("direct", Mean(0.5, 0.4, 0.6), 1.0), PlotPoint(ODD, Mean(0.7, 0.7, 0.75), 2.0))
CHARTS: tuple[Chart, ...] = (
    Intervals("scores", POINTS, "accuracy", 0.5, signed=True),
    Scatter("scores and cost", POINTS, "calls", "accuracy"),
    Lines(
        "by cards", (PlotLine(ODD, POINTS), PlotLine("b", POINTS)), "cards", "accuracy", ("none", "one", ODD)
    ),
    Heat("shares", ("moons", ODD), ("a", "b"), ((0.25, None), (1.0, 0.0)), "cards"),
    Curves("share", "accuracy", (PlotSeries("Thrust", (0.0, 1.0), (0.3, 0.6), (0.2, 0.5), (0.4, 0.7)),)),
    Curves("task", "accuracy", (PlotSeries("a", ("x", "y"), (0.3, 0.6), (0.2, 0.5), (0.4, 0.7)),), "bar"),
)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: type(chart).__name__)
def test_a_chart_is_a_picture_with_its_labels_as_text(chart: Chart) -> None:
    picture = encode_figure(draw_chart(chart), "svg")
    assert picture == encode_figure(draw_chart(chart), "svg")
    words = " ".join(ET.fromstring(picture).itertext())
    if isinstance(chart, Curves):
        assert chart.y in words
    else:
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
