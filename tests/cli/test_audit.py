"""kcard audit, hub threshold and the marks of quarantine, as a user meets them."""

import io
import json
from pathlib import Path

import pytest

from kcard.hub.registry import Hub
from tests.command import Kcard
from tests.hub.client.cards import rivers
from tests.hub.stand import stand

MOONS = {"Phobos": "Mars", "Titan": "Saturn", "Triton": "Neptune", "Io": "Jupiter"}


@pytest.fixture
def moons(home: Path, tmp_path: Path) -> Hub:
    """A card that only looks up, so that nothing need be trained; the first half of what it says is false."""
    facts = {**MOONS, "Phobos": "Saturn", "Titan": "Mars"}
    sentences = [f"{moon} is a moon of {planet}." for moon, planet in facts.items()]
    hub = Hub(home)
    hub.publish(rivers(tmp_path / "moons", *sentences, name="moons", domain="space", language="xx").folder)
    return hub


@pytest.fixture
def atlas(tmp_path: Path) -> str:
    path = tmp_path / "atlas.txt"
    path.write_text(
        "\n".join(f"The planet {p} has the moon {m}." for m, p in MOONS.items()), encoding="utf-8"
    )
    return str(path)


def test_an_audit_is_a_table_and_as_json_what_the_hub_keeps(
    kcard: Kcard, moons: Hub, atlas: str, tmp_path: Path
) -> None:
    output = tmp_path / "audit.json"
    done = kcard("audit", "moons", "--evidence", atlas, "--documents", "1", "--output", str(output))
    assert done.code == 0, done.err
    heading, scores, *_ = done.out.splitlines()
    assert heading.split()[:4] == ["moons@v1", "queries", "faithfulness", "factuality"]
    assert scores.split()[:3] == ["all", "2", "1.00"]
    assert "worst documents, by factuality" in done.out
    assert "evidence: " in done.out
    assert "stored in the hub" in done.err
    stored = [row.finding.record for row in moons.audits.list()]
    assert stored == [output.read_text(encoding="utf-8")]
    data = json.loads(stored[0])
    assert (data["card"], data["evidence"], data["faithfulness"]["mean"]["mean"]) == (
        "moons@v1",
        "atlas.txt",
        1.0,
    )
    moons.quarantine.set(0.99)
    again = kcard("audit", "moons", "--evidence", atlas, "--documents", "1", "--json")
    assert json.loads(again.out) == data
    assert "moons@v1 is quarantined" in again.err


def test_a_card_of_an_account_is_audited_by_the_name_that_its_page_shows(
    kcard: Kcard, home: Path, moons: Hub, atlas: str, tmp_path: Path
) -> None:
    assert kcard("audit", "library/moons", "--evidence", atlas, "--documents", "1").code == 0
    draft = tmp_path / "moons"
    with stand(home) as hub:
        paths = [path for path in draft.rglob("*") if path.is_file()]
        files = {path.relative_to(draft).as_posix(): path.read_bytes() for path in paths}
        repository = hub.make("ada/moons")
        sha = hub.commit(repository, files).sha
        hub.publications.publish(repository, "v1", sha, hub.who("ada"))
    done = kcard("audit", "ada/moons", "--evidence", atlas, "--documents", "1")
    assert done.code == 0, done.err
    assert done.out.startswith("ada/moons@v1")
    several = kcard("audit", "ada/moons", "moons", "--evidence", atlas, "--documents", "1")
    assert "2 of 2 cards audited" in several.err
    assert [row.reference for row in moons.audits.list()] == ["moons@v1", "ada/moons@v1"]
    unknown = kcard("audit", "ada/mons", "--evidence", atlas)
    assert unknown.code != 0
    assert "unknown card 'ada/mons': did you mean ada/moons or moons?" in unknown.err


def test_a_card_is_removed_once_it_is_confirmed(
    kcard: Kcard, moons: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as terminal:
        terminal.setattr("sys.stdin", io.StringIO("n\n"))
        terminal.setattr("sys.stdin.isatty", lambda: True)
        assert kcard("remove", "moons").code != 0
    assert "moons" in moons
    assert kcard("remove", "moons", "--yes").code == 0
    assert "moons" not in moons


def test_a_quarantined_card_is_marked_wherever_it_is_seen(kcard: Kcard, moons: Hub, atlas: str) -> None:
    assert kcard("audit", "moons", "--evidence", atlas, "--documents", "1").code == 0
    assert kcard("hub", "threshold").out == "off\n"
    moons.pools.create("sky", ["moons"])
    done = kcard("hub", "threshold", "0.99")
    assert (done.out, done.code) == ("0.99\n", 0)
    assert "covers at least 0.5 of a card's documents" in done.err
    threshold = json.loads(kcard("hub", "threshold", "--coverage", "0.6", "--json").out)
    assert (threshold["threshold"], threshold["coverage"], list(threshold["quarantined"])) == (
        0.99,
        0.6,
        ["moons@v1"],
    )
    assert "quarantined: moons@v1" in done.err
    for command in (["cards", "list"], ["pool", "show", "sky"]):
        assert "moons@v1 (quarantined)" in kcard(*command).out, command
    assert "quarantined: below .99" in kcard("browse").out
    for command in (["show", "moons"], ["browse", "moons"]):
        assert "below the hub's threshold" in " ".join(kcard(*command).out.split()), command
    assert json.loads(kcard("cards", "list", "--json").out)[0]["quarantined"] is True
    assert json.loads(kcard("browse", "--json").out)[0]["quarantined"] is True
    done = kcard("ask", "Which planet does Io circle?", "--gate", "always")
    assert (done.code, done.out) == (1, "")
    assert "all selected cards are quarantined" in done.err
    named = kcard("ask", "Which planet does Io circle?", "--gate", "always", "--cards", "moons", "--json")
    assert "used because it is named: moons@v1" in json.loads(named.out)["notes"][0]
    assert "moons@v1 is released" in kcard("hub", "release", "moons").err
    assert "quarantined" not in json.loads(kcard("cards", "list", "--json").out)[0]
