"""Cards that are published into a hub of one's own are repositories of the hub's own namespace."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcard.errors import CardError, HubError, UsageError
from kcard.hub import history
from kcard.hub.db.models import Repository
from kcard.hub.errors import Conflict, Invalid, NotFound
from kcard.hub.publications import LocalCards
from kcard.hub.services import HubServices
from kcard.manifest import seal
from tests.hub.client.cards import rivers

NAME = "library/rivers"


@pytest.fixture
def hub(tmp_path: Path, any_database: str | None) -> Iterator[HubServices]:
    """A hub with a card of two versions."""
    hub = HubServices(tmp_path / "home", database_url=any_database)
    hub.registry.publish(rivers(tmp_path / "one").folder, aliases=["stable"])
    hub.registry.publish(rivers(tmp_path / "two", "The Rhine is long.").folder)
    yield hub
    hub.database.close()


def repository(hub: HubServices, name: str = NAME) -> Repository:
    return hub.repositories.get("model", name)


def refs(hub: HubServices) -> tuple[dict[str, str], dict[str, str]]:
    """Branches and tags: the commit of each."""
    branches, tags = hub.refs.branches(repository(hub)), hub.refs.tags(repository(hub))
    return {ref.name: ref.sha for ref in branches}, {ref.name: ref.sha for ref in tags}


def test_a_version_is_a_commit_and_a_tag_and_an_alias_a_branch(hub: HubServices) -> None:
    branches, tags = refs(hub)
    assert branches == {"main": tags["v2"], "stable": tags["v1"]}
    tree = hub.commits.tree(repository(hub), tags["v1"])
    assert {path: entry.sha256 for path, entry in tree.items()} == hub.registry.get("rivers@v1").files
    history = hub.commits.list(repository(hub), tags["v2"])
    assert [commit.title for commit in history] == ["rivers v2", "rivers v1"]


def test_the_publications_of_the_repository_are_the_versions_of_the_card(hub: HubServices) -> None:
    published = [(p.tag, p.number, p.version) for p in hub.publications.list(repository(hub))]
    versions = hub.registry.versions("rivers")
    assert published == [(f"v{v.number}", v.number, v.sha256) for v in versions]
    assert [v.reference for v in hub.registry.list()] == ["rivers@v2"]
    assert hub.registry.versions(NAME) == versions


def test_an_alias_moves_and_its_name_is_no_tag_s(hub: HubServices) -> None:
    hub.registry.alias("rivers@v2", "stable")
    assert refs(hub)[0]["stable"] == refs(hub)[1]["v2"]
    hub.refs.create_tag(repository(hub), "release", refs(hub)[1]["v1"])
    with pytest.raises(Conflict, match="alias 'release' conflicts with a tag"):
        hub.registry.alias("rivers@v2", "release")
    with pytest.raises(UsageError, match="reserved for the newest"):
        hub.registry.alias("rivers@v1", "main")


def test_removing_the_newest_version_brings_back_the_one_before(hub: HubServices) -> None:
    hub.registry.remove("rivers@v2")
    branches, tags = refs(hub)
    assert branches == {"main": tags["v1"], "stable": tags["v1"]}
    assert list(tags) == ["v1"]
    assert repository(hub).head == tags["v1"]
    assert hub.registry.gc() == []
    assert hub.registry.verify() == []


def test_removing_an_older_version_leaves_the_newest_with_its_history(
    hub: HubServices, tmp_path: Path
) -> None:
    gone = set(hub.registry.get("rivers@v1").files.values()) - set(
        hub.registry.get("rivers@v2").files.values()
    )
    hub.registry.remove("rivers@v1")
    branches, tags = refs(hub)
    assert branches == {"main": tags["v2"]}
    assert [commit.title for commit in hub.commits.list(repository(hub), tags["v2"])] == ["rivers v2"]
    assert not any(hub.blobs.holds(sha256) for sha256 in gone)
    assert hub.registry.publish(rivers(tmp_path / "three", "The Rhine is cold.").folder).number == 3


def test_main_is_at_another_version_when_the_first_commit_goes(hub: HubServices) -> None:
    first = refs(hub)[1]["v1"]
    with hub.database.write() as connection:
        history.point_branch(connection, repository(hub).id, "main", first)
    hub.registry.remove("rivers@v1")
    assert refs(hub)[0] == {"main": refs(hub)[1]["v2"]}


def test_removing_the_last_version_removes_the_repository(hub: HubServices) -> None:
    hub.registry.remove("rivers")
    with pytest.raises(NotFound):
        repository(hub)
    assert list(hub.blobs.sizes()) == []


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("run.py", b"print(1)"),
        ("README.md", b"---\n[\n---\n"),
        ("config.json", b'{"auto_map": {"AutoModel": "modeling.Evil"}}'),
        ("adapter_config.json", b'{"auto_map": {"AutoModel": "modeling.Evil"}}'),
    ],
)
def test_a_card_with_a_file_that_no_client_could_upload_is_refused_by_name(
    hub: HubServices, tmp_path: Path, path: str, content: bytes
) -> None:
    card = rivers(tmp_path / "odd", name="odd")
    (card.folder / path).write_bytes(content)
    seal(card.folder, card.manifest)
    with pytest.raises(CardError, match=re.escape(path)):
        hub.registry.publish(card.folder)
    assert "odd" not in hub.registry


def test_the_cards_move_into_the_organisation_that_is_named(hub: HubServices, tmp_path: Path) -> None:
    LocalCards(hub.database, hub.blobs).rename("Clinic")
    assert repository(hub, "clinic/rivers").name == "Clinic/rivers"
    with pytest.raises(NotFound):
        repository(hub)
    assert [v.reference for v in hub.registry.versions("rivers")] == ["rivers@v1", "rivers@v2"]
    third = hub.registry.publish(rivers(tmp_path / "three", "The Rhine is cold.").folder)
    assert third.reference == "rivers@v3"
    LocalCards(hub.database, hub.blobs).rename("clinic")
    assert hub.registry.get("rivers") == third


def test_a_user_s_namespace_and_a_taken_name_are_refused_and_nothing_moves(hub: HubServices) -> None:
    hub.accounts.add_user("ada", admin=True)
    ada = hub.accounts.get("ada")
    with pytest.raises(HubError, match="in ada: it belongs to its members or is a user"):
        LocalCards(hub.database, hub.blobs).rename("ada")
    lab = hub.accounts.add_organisation("lab", owner="ada")
    identity = hub.tokens.identify(hub.tokens.create(ada.name, scope="admin"))
    assert identity is not None
    hub.repositories.create("model", lab.id, "lab/rivers", by=identity)
    with pytest.raises(HubError, match="in lab: it belongs to its members"):
        LocalCards(hub.database, hub.blobs).rename("lab")
    LocalCards(hub.database, hub.blobs).rename("clinic")
    back = hub.accounts.get("library")
    hub.repositories.create("model", back.id, "library/rivers", by=identity)
    with pytest.raises(HubError, match="library/rivers already exists"):
        LocalCards(hub.database, hub.blobs).rename("library")
    assert hub.registry.get("rivers").number == 2
    assert repository(hub, "clinic/rivers").name == "clinic/rivers"


@pytest.mark.parametrize("name", ["library", "Library", "library-cards"])
def test_nobody_creates_the_organisation_that_the_hub_creates_for_its_own_cards(
    tmp_path: Path, name: str
) -> None:
    hub = HubServices(tmp_path / "home")
    hub.accounts.add_user("mallory")
    with pytest.raises(Invalid, match="is reserved"):
        hub.accounts.add_organisation(name, owner="mallory")
    with pytest.raises(Invalid, match="is reserved"):
        hub.accounts.add_user(name)


def test_an_organisation_called_library_of_before_is_not_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = HubServices(tmp_path / "home")
    hub.accounts.add_user("mallory")
    with monkeypatch.context() as before:
        before.setattr("kcard.hub.accounts.TAKEN", set())
        hub.accounts.add_organisation("library", owner="mallory")
    hub.registry.publish(rivers(tmp_path / "one").folder)
    assert repository(hub, "library-cards/rivers").namespace == "library-cards"


def test_a_hub_of_cards_alone_still_gets_its_first_administrator(hub: HubServices) -> None:
    first = hub.accounts.create_first()
    assert first is not None
    assert first.admin
    assert hub.accounts.create_first() is None
