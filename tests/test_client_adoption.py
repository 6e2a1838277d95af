"""Cards of the local hub in the shared one that is served from it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kcard.errors import HubError
from kcard.hub.adoption import Adoption
from kcard.hub.shared import SharedHub
from tests.client_cards import rivers

NAME = "library/rivers"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SharedHub]:
    """A hub with an administrator, and a card of two versions that was published locally."""
    hub = SharedHub.open(tmp_path / "home")
    hub.accounts.add_user("ada", admin=True)
    hub.local.publish(rivers(tmp_path / "one").folder, aliases=["stable"])
    hub.local.publish(rivers(tmp_path / "two", "The Rhine is long.").folder)
    yield hub
    hub.database.close()


def refs(hub: SharedHub) -> tuple[dict[str, str], dict[str, str]]:
    """Branches and tags: the commit of each."""
    repository = hub.repositories.get("model", NAME)
    branches, tags = hub.refs.branches(repository), hub.refs.tags(repository)
    return {ref.name: ref.sha for ref in branches}, {ref.name: ref.sha for ref in tags}


def test_every_version_becomes_a_commit_and_a_tag(hub: SharedHub) -> None:
    assert Adoption(hub).run() == 2
    branches, tags = refs(hub)
    assert branches == {"main": tags["v2"], "stable": tags["v1"]}
    repository = hub.repositories.get("model", NAME)
    tree = hub.commits.tree(repository, tags["v1"])
    version = hub.local.get("rivers@v1")
    assert {e.path: e.sha256 for e in tree.values() if e.path != ".gitattributes"} == version.files


def test_a_publication_is_the_local_version_and_no_copy_of_it(hub: SharedHub) -> None:
    Adoption(hub).run()
    found = hub.publications.of(hub.repositories.get("model", NAME))
    assert [(p.tag, p.number, p.version) for p in found] == [
        (f"v{v.number}", v.number, v.sha256) for v in hub.local.versions("rivers")
    ]
    assert [v.name for v in hub.local.list()] == ["rivers"]


def test_a_second_run_changes_nothing(hub: SharedHub) -> None:
    adoption = Adoption(hub)
    adoption.run()
    before = refs(hub)
    assert adoption.run() == 0
    assert refs(hub) == before


def test_what_comes_later_is_adopted_and_an_alias_moves(hub: SharedHub, tmp_path: Path) -> None:
    adoption = Adoption(hub)
    adoption.run()
    hub.local.publish(rivers(tmp_path / "three", "The Rhine is cold.").folder, aliases=["stable"])
    assert adoption.run() == 1
    branches, tags = refs(hub)
    assert branches == {"main": tags["v3"], "stable": tags["v3"]}


@pytest.mark.parametrize("step", ["commit", "tag"])
def test_what_was_interrupted_is_adopted_once(
    hub: SharedHub, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        if step == "commit":
            broken.setattr("kcard.hub.adoption.Adoption._commit", killed)
        else:
            broken.setattr("kcard.hub.adoption.put_tag", killed)
        with pytest.raises(KeyboardInterrupt):
            Adoption(hub).run()
    assert Adoption(hub).run() == 2
    repository = hub.repositories.get("model", NAME)
    assert len(hub.commits.list(repository, refs(hub)[0]["main"])) == 3


def test_a_card_that_a_shared_hub_does_not_store_is_left_out_and_told_once(
    hub: SharedHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("kcard.hub.adoption.log.warning", lambda text, *parts: told.append(text % parts))
    card = rivers(tmp_path / "odd", name="odd")
    (card.folder / "run.py").write_text("print(1)")
    from kcard.manifest import seal

    seal(card.folder, card.manifest)
    hub.local.publish(card.folder)
    adoption = Adoption(hub)
    assert adoption.run() == 2
    assert adoption.run() == 0
    assert told == [f"odd@v1 is not adopted: {next(iter(adoption.refused.values()))}"]


def test_a_version_that_is_removed_locally_stays_away(hub: SharedHub) -> None:
    adoption = Adoption(hub)
    adoption.run()
    hub.local.remove("rivers@v1")
    assert adoption.run() == 0
    repository = hub.repositories.get("model", NAME)
    assert [p.tag for p in hub.publications.of(repository)] == ["v2"]


def test_it_adopts_into_the_organisation_that_is_asked_for(hub: SharedHub, tmp_path: Path) -> None:
    Adoption(hub, "clinic").run()
    assert hub.repositories.get("model", "clinic/rivers").name == "clinic/rivers"
    hub.local.publish(rivers(tmp_path / "three", "The Rhine is cold.").folder)
    with pytest.raises(HubError, match="ada is a user"):
        Adoption(hub, "ada").run()


def test_a_hub_without_an_administrator_is_told_of(tmp_path: Path) -> None:
    hub = SharedHub.open(tmp_path / "bare")
    hub.local.publish(rivers(tmp_path / "one").folder)
    with pytest.raises(HubError, match="nobody administers"):
        Adoption(hub).run()
    hub.database.close()
