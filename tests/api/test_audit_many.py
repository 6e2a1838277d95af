"""Many cards are audited as each would be alone, and the hub keeps each audit once."""

import json
from pathlib import Path

import pytest

import kcard
from kcard.answer import Source
from kcard.api.audit import audit
from kcard.api.audit_many import audit_many
from kcard.cards.format.folder import finish
from kcard.errors import HubError, UsageError
from kcard.hub.registry import Hub
from kcard.manifest import Manifest
from tests.command import Kcard

PLACES = {"moons": ["Phobos", "Titan", "Triton", "Io"], "rivers": ["Arno", "Tagus", "Oder", "Main"]}


def make(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True)
    sources = [Source(f"{place} is one of the {name} number {n}.") for n, place in enumerate(PLACES[name])]
    finish(folder, Manifest(name, name, "space", kind="retrieval", language="xx"), sources)
    return folder


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    hub = Hub(home)
    hub.publish(make(tmp_path / "moons", "moons"))
    return hub


def records(hub: Hub) -> list[str]:
    return [stored.finding.record for stored in hub.audits.list()]


def test_several_cards_are_audited_as_each_alone_and_a_broken_one_costs_itself(
    kcard: Kcard, hub: Hub, tmp_path: Path
) -> None:
    rivers = make(tmp_path / "rivers", "rivers")
    alone = audit("moons", documents=1, keep=False).to_json()
    out = tmp_path / "audits.jsonl"
    command = ("audit", "moons", rivers, "--documents", "1", "--output", out)
    done = kcard(*command, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out.splitlines()[0]) == json.loads(alone)
    assert records(hub) == [alone]
    written = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert [row["key"] for row in written] == ["moons@v1", str(rivers)]
    out.write_bytes(out.read_bytes().splitlines(keepends=True)[0])
    (rivers / "passages.jsonl").write_text("{}", encoding="utf-8")
    again = kcard(*command, "--resume")
    assert again.code == 1
    assert f"{rivers}: card 'rivers'" in again.err
    assert "1 of 2 cards audited" in again.err
    assert [line.split()[0] for line in again.out.splitlines()] == ["card", "moons@v1"]
    assert records(hub) == [alone]


def test_an_audit_that_the_hub_did_not_keep_before_its_run_was_killed_is_kept_later(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "audits.jsonl"

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("kcard.api.audit_many._keep", killed)
        with pytest.raises(KeyboardInterrupt):
            audit_many(["moons"], documents=1, output=out)
    assert records(hub) == []
    audit_many(["moons"], documents=1, output=out, resume=True)
    assert len(records(hub)) == 1


def test_wrong_options_and_cards_are_refused_before_anything_is_audited(hub: Hub) -> None:
    with pytest.raises(UsageError, match="documents is 0"):
        kcard.audit_many(["moons"], documents=0)
    with pytest.raises(UsageError, match="query is not an option of an audit"):
        audit_many(["moons"], query="x")
    with pytest.raises(UsageError, match="resume needs output"):
        audit_many(["moons"], resume=True)
    with pytest.raises(UsageError, match="a checker that is an object"):
        audit_many(["moons"], checker=object())
    with pytest.raises(HubError, match="mars"):
        audit_many(["moons", "mars"])
    assert records(hub) == []
