"""A hub that an earlier version made opens with all that it holds."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcard.hub.registry import Hub
from kcard.hub.repositories.audits import AuditFinding
from kcard.hub.repositories.repositories import Repositories
from kcard.hub.repositories.uploads import Uploads
from kcard.hub.repositories.versions import Version
from kcard.hub.restore import inconsistent
from kcard.manifest import Manifest, seal
from tests.hub.old_hub import as_before
from tests.hub.rows import counted
from tests.hub.stand import Stand, opened, stand
from tests.hub.test_repositories_publications import card as card_files

CARDS = 100


def folder(path: Path, name: str, text: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(f'{{"text": "{text}"}}', encoding="utf-8")
    (path / "README.md").write_text(f"---\nlicense: mit\n---\n# {name}\n", encoding="utf-8")
    seal(path, Manifest(name=name, description=f"About {name} {text}", domain="medicine"))
    return path


def finding(factuality: float) -> AuditFinding:
    return AuditFinding("minilm", None, "atlas", "ab" * 32, "own", "cd" * 32, 0, 1.0, factuality, "{}")


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred cards, every tenth with two versions and an audit, and one that ada published from elsewhere."""
    scratch = tmp_path_factory.mktemp("hundred")
    with stand(scratch / "home") as hub:
        for number in range(CARDS):
            name = f"card{number}"
            first = hub.registry.publish(folder(scratch / name, name, "one"), aliases=["stable"])
            if number % 10 == 0:
                hub.registry.publish(folder(scratch / name, name, "two"), aliases=["next"])
                hub.registry.audits.add(first, finding(number / 100))
        hub.registry.pools.create("clinic", ["card1", "card2@stable"])
        hub.registry.remove("card10@v2")
        shared = hub.make("ada/Onco")
        sha = hub.commit(shared, card_files()).sha
        hub.publications.publish(shared, "v1", sha, hub.who("ada"), "hello")
    return scratch / "home"


@pytest.fixture
def hub(hundred: Path, tmp_path: Path) -> Iterator[Stand]:
    """A copy of it."""
    shutil.copytree(hundred, tmp_path / "home")
    with opened(tmp_path / "home") as hub:
        yield hub


def everything(hub: Hub) -> tuple[object, ...]:
    return hub._catalogue.versions(), hub.audits.list(), hub.pools.list(), hub.quarantine.threshold


def newest(hub: Hub, name: str) -> Version:
    return hub.versions(name)[-1]


@pytest.mark.parametrize("adopted", [True, False], ids=["served", "never served"])
def test_a_hub_of_a_hundred_cards_opens_complete(hub: Stand, adopted: bool) -> None:
    before, people = everything(hub.registry), [a for a in hub.accounts.list() if a.kind == "user"]
    as_before(hub.registry.home, "0004", adopted=adopted)
    again = Hub(hub.registry.home)
    assert everything(again) == before
    assert again.verify() == []
    assert again.gc() == []
    assert inconsistent(again.database) == []
    assert [account for account in hub.accounts.list() if account.kind == "user"] == people


def test_what_was_committed_before_is_counted_and_an_upload_is_kept(hub: Stand) -> None:
    ada = hub.accounts.get("ada").id
    uploads = Uploads(hub.registry.database, hub.registry.blobs)
    uploads.record(ada, {"ab" * 32: 1000})
    used = counted(hub.registry.database)
    assert used["ada"] > 0
    as_before(hub.registry.home, "0004", adopted=True)
    again = Hub(hub.registry.home)
    assert counted(again.database)["ada"] == used["ada"]
    assert Uploads(again.database, again.blobs).pending(ada) == 1000


def test_every_version_is_a_commit_a_tag_and_its_aliases_branches(hub: Stand) -> None:
    as_before(hub.registry.home, "0004")
    Hub(hub.registry.home)
    repository = hub.repositories.get("model", "library/card20")
    tags = {ref.name: ref.sha for ref in hub.refs.tags(repository)}
    branches = {ref.name: ref.sha for ref in hub.refs.branches(repository)}
    assert branches == {"main": tags["v2"], "next": tags["v2"], "stable": tags["v1"]}
    tree = hub.commits.tree(repository, tags["v1"])
    assert {path: entry.sha256 for path, entry in tree.items()} == hub.registry.get("card20@v1").files
    assert not tree["README.md"].lfs
    assert {"license:mit", "kcard", "domain:medicine"} <= set(repository.tags)
    assert [(p.tag, p.number) for p in hub.publications.of(repository)] == [("v1", 1), ("v2", 2)]


def test_the_number_of_a_removed_version_does_not_come_back(hub: Stand, tmp_path: Path) -> None:
    number = hub.registry.publish(folder(tmp_path / "new", "card30", "three")).number
    hub.registry.remove("card30@v3")
    assert hub.registry.publish(folder(tmp_path / "new", "card30", "four")).number == number + 1


def test_a_file_that_is_damaged_stops_no_migration(hub: Stand) -> None:
    version = hub.registry.get("card40@v1")
    hub.registry.blobs.delete(version.files["README.md"])
    as_before(hub.registry.home, "0004")
    again = Hub(hub.registry.home)
    assert again.get("card40@v1") == version
    assert "README.md" in {problem.path for problem in again.verify("card40@v1")}


def test_a_card_of_a_user_called_library_is_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand(tmp_path / "home") as hub:
        with monkeypatch.context() as patch:
            patch.setattr("kcard.hub.accounts.names.TAKEN", set())
            hub.accounts.add_user("library")
        hub.registry.publish(folder(tmp_path / "draft", "rivers", "one"))
        before = everything(hub.registry)
        as_before(hub.registry.home, "0004")
        assert everything(Hub(hub.registry.home)) == before
        assert (
            Repositories(hub.registry.database, hub.registry.blobs).get("model", "library-cards/rivers").size
            > 0
        )


def test_a_backup_of_before_is_restored(hub: Stand, tmp_path: Path) -> None:
    versions = hub.registry._catalogue.versions()
    as_before(hub.registry.home, "0004")
    Hub(hub.registry.home).backup(tmp_path / "hub.tar")
    restored = Hub(tmp_path / "restored")
    assert restored.restore(tmp_path / "hub.tar") == versions
