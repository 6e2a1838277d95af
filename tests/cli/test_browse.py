"""kcard browse and show: what fits a terminal, whole names, figures with their samples, and how to measure others."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from kcard.cli import main
from kcard.evaluation.records import Audit, Distribution, Mean
from kcard.hub.audits import AuditFinding
from kcard.hub.registry import Hub
from kcard.hub.values import ScoreEstimate, format_score
from kcard.manifest import Manifest
from tests.command import Kcard
from tests.evaluation.test_browse import make_exam, publish

LONG = "a-card-with-a-very-long-name-that-leaves-no-room-for-anything-else"
Browse = Callable[..., str]


def audit(hub: Hub, reference: str, scores: list[float], unknown: int, overlap: float = 0.0) -> None:
    """Store an audit with these scores; the evidence does not cover `unknown` further documents."""
    factuality = Distribution.of([*scores, *[None] * unknown])
    assert factuality.mean is not None
    record = Audit(
        card=reference, kcard="0.1", queries="own", queries_sha256="ab" * 32, asked=20, documents=3, empty=0, seed=0,
        limit=200, temperature=0.1, tokens=100, checker="minilm", evidence="wikipedia:en", evidence_sha256="cd" * 32,
        evidence_overlap=overlap, factuality=factuality,
        coverage=Mean.of([1.0] * len(scores) + [0.0] * unknown),
    )  # fmt: skip
    finding = AuditFinding(
        "minilm", None, "wikipedia:en", "cd" * 32, "own", "ab" * 32, 0, None, factuality.mean.mean, record.to_json(),
        coverage=factuality.coverage, judged=len(scores), overlap=overlap,
    )  # fmt: skip
    hub.audits.add(hub.get(reference), finding)


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    """Moons is measured, of rivers the first of two versions, laws by its own corpus, minutes not at all."""
    hub = Hub(home)
    about = "Moons of the solar system: planets, discoverers and years"
    publish(hub, tmp_path / "a", Manifest("moons", about, "science"), make_exam("moons", 0.9, [0.9], None))
    audit(hub, "moons", [0.81] * 40, 10)
    for folder in ("b", "c"):
        manifest = Manifest("rivers", f"Rivers of Europe, {folder}", "geography")
        publish(hub, tmp_path / folder, manifest, make_exam("rivers", 0.8, [0.9], [0.95] * 20))
        if folder == "b":
            audit(hub, "rivers", [0.19] * 40, 0)
    publish(hub, tmp_path / "d", Manifest("laws", "Laws of the land", "law"), None)
    audit(hub, "laws", [0.97] * 60, 0, overlap=0.42)
    publish(hub, tmp_path / "e", Manifest("minutes", "What the team decided", "general"), None)
    return hub


@pytest.fixture
def browse(monkeypatch: pytest.MonkeyPatch) -> Browse:
    def run(*arguments: str, width: int = 80, colour: bool = False) -> str:
        stream = io.StringIO()
        terminal = Console(file=stream, width=width, force_terminal=colour, highlight=False)
        monkeypatch.setattr("kcard.cli.browse.console", lambda: terminal)
        monkeypatch.setattr("sys.argv", ["kcard", "browse", *arguments])
        assert main.exit_code() == 0
        return stream.getvalue()

    return run


def test_a_score_has_two_digits_and_no_zero_before_the_point() -> None:
    assert [format_score(value) for value in (0.0, 0.814, 1.0)] == [".00", ".81", "1.00"]
    assert [format_score(value, "+") for value in (0.31, -0.05)] == ["+.31", "-.05"]
    assert str(ScoreEstimate(0.81, 40, 0.66, 0.9)) == ".81 (n 40, .66–.90)"
    assert str(ScoreEstimate(0.81)) == ".81 (n unknown)"
    assert [ScoreEstimate(value).tone for value in (0.24, 0.5, 0.7)] == ["poor", "fair", "good"]


@pytest.mark.parametrize("width", [40, 80, 120, 160])
def test_no_terminal_breaks_a_name_a_figure_or_a_command(
    hub: Hub, browse: Browse, tmp_path: Path, width: int
) -> None:
    def check() -> None:
        shown = browse(width=width)
        for whole in ("moons@v1", "rivers@v2", "laws@v1", "minutes@v1", ".81 (n 40, .66–.90)"):
            assert whole in shown, whole
        assert "kcard audit minutes --evidence FILE" in shown
        assert "What the team decided" in " ".join(shown.split())

    check()
    publish(hub, tmp_path / "long", Manifest(LONG, "Long", "general"), None)
    check()
    assert f"{LONG}@v1" in browse(width=width)
    assert f"kcard audit {LONG} --evidence FILE" in browse(width=width)


@pytest.mark.usefixtures("hub")
def test_80_columns_keep_one_figure_and_wider_ones_show_more(browse: Browse) -> None:
    def heading(width: int) -> list[str]:
        return browse(width=width).splitlines()[0].split()

    assert heading(80) == ["card", "description", "factuality"]
    assert heading(120) == ["card", "description", "factuality", "recall"]
    assert set(heading(120)) < set(heading(170))
    assert all(len(line) <= 80 for line in browse().splitlines())
    # The figure that they are sorted by stays.
    assert browse("--sort", "recall").splitlines()[0].split() == ["card", "description", "recall"]


def test_a_card_without_the_figure_of_the_column_shows_the_one_that_it_has(hub: Hub, browse: Browse) -> None:
    hub.remove("laws")
    hub.remove("rivers")
    hub.remove("moons")
    assert "factuality not measured: kcard audit minutes" in browse()
    assert "recall" not in browse(width=160), "no card has any"


def test_a_new_version_keeps_the_place_of_the_last_measured_one(hub: Hub, browse: Browse) -> None:
    shown = browse("--sort", "factuality")
    assert "v1: .19; v2 waiting" in shown
    assert ".19 (n 40, .10–.34)" in shown
    # Rivers declare .95, but the last audit ranks them; the evidence of laws is their own corpus.
    order = re.findall(r"^(\w+)@v", shown, re.M)
    assert order[:2] == ["moons", "rivers"]
    assert "not ranked: its evidence repeats its own corpus by 42%" in " ".join(shown.split())
    audit(hub, "rivers@v2", [0.9] * 40, 0)
    assert "waiting" not in browse()
    assert re.findall(r"^(\w+)@v", browse("--sort", "factuality"), re.M)[:2] == ["rivers", "moons"]


@pytest.mark.usefixtures("hub")
def test_values_are_coloured_by_what_they_are_whoever_measured_them(browse: Browse) -> None:
    shown = browse(colour=True)
    assert "\x1b[32m.81\x1b[0m" in shown
    assert "\x1b[31m.19\x1b[0m" in shown
    assert "\x1b[32m.97" not in shown  # by its own corpus
    assert "20% not covered by the evidence" in " ".join(browse(width=120).split())


@pytest.mark.usefixtures("hub")
def test_only_a_passage_with_a_poor_score_is_red(browse: Browse) -> None:
    worst = browse("moons", colour=True).partition("worst passages")[2]
    assert worst.count("\x1b[31m.10\x1b[0m") == 1
    assert ".80" not in worst  # it is a good one
    assert browse("moons", colour=True).count("\x1b[32m.90\x1b[0m  ") == 1


@pytest.mark.usefixtures("hub")
def test_json_has_the_samples_and_the_version_that_ranks_the_card(kcard: Kcard) -> None:
    rows = {row["name"]: row for row in json.loads(kcard("browse", "--json").out)}
    rivers = rows["rivers"]
    assert rivers["standing"] == {
        "value": 0.19, "count": 40, "low": 0.0979, "high": 0.3364, "version": 1, "waiting": True,
    }  # fmt: skip
    recall = {"value": 0.8, "count": 10, "low": 0.75, "high": 0.85}
    assert rivers["estimates"]["recall"] == pytest.approx(recall)
    assert rivers["estimates"]["lift"]["value"] == pytest.approx(rivers["lift"]) != recall["value"]
    assert (rivers["factuality"], rows["minutes"]["standing"]) == (0.95, None)


@pytest.mark.usefixtures("hub")
def test_show_has_the_figures_with_their_samples_or_how_to_measure_them(kcard: Kcard) -> None:
    moons = kcard("show", "moons").out
    assert "factuality .81 (n 40, .66–.90), verified by this hub on 20" in moons
    assert "recall .90 (n 10, .85–.95), self-declared, in the card's exam" in moons
    assert "v1: .19; v2 waiting" in kcard("show", "rivers").out
    assert "factuality not measured: kcard audit minutes --evidence FILE" in kcard("show", "minutes").out
