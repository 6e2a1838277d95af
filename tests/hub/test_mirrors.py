"""What a hub keeps of another one, in both databases."""

import io
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kcard.cli.main import app
from kcard.hub.records.utc import now
from kcard.hub.refusals import Conflict, NotThere
from kcard.hub.registry import Hub
from kcard.hub.repositories.mirrors import Mirror, Seen
from kcard.hub.repositories.own_cards import OwnCards
from kcard.hub.repositories.values import Entry
from kcard.hub.store.blobs import put_stream
from tests.hub.stand import Stand, stand

URL, OTHER = "https://hub.example", "https://other.example"
SHA, OID, SHA256 = (
    "ab" * 20,
    "cd" * 20,
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
)  # of "test"


@pytest.fixture
def hub(tmp_path: Path, any_database: str | None) -> Iterator[Stand]:
    with stand(tmp_path / "hub", any_database) as hub:
        yield hub


def seen(name: str = "acme/Model", sha: str = SHA, **changed: object) -> Seen:
    files = {"a.txt": Entry("a.txt", OID, "", 4, lfs=False)}
    values = {"open": True, "gated": "no", "about": {"tags": ["tiny"]}, "files": files} | changed
    return Seen(name, sha, **values)  # type: ignore[arg-type]


def kept(hub: Stand, what: Seen | None = None, account: int | None = None) -> Mirror:
    return hub.registry.mirrors.keep("model", URL, "main", what or seen(), account)


def test_a_commit_is_kept_with_its_files_and_what_was_said_of_it(hub: Stand) -> None:
    mirrors, mirror = hub.registry.mirrors, kept(hub)
    assert mirrors.find("model", "ACME/model") == mirror
    assert mirrors.find("dataset", "acme/Model") is None
    assert mirrors.commit(mirror, SHA).files == seen().files
    assert mirrors.commit(mirror, SHA).about == {"tags": ["tiny"]}
    assert mirrors.revision(mirror, SHA) == (SHA, None)
    assert mirrors.revision(mirror, "other") is None
    with pytest.raises(NotThere):
        mirrors.commit(mirror, "ef" * 20)


def test_a_branch_moves_and_a_commit_stays_as_it_was(hub: Stand) -> None:
    mirrors, mirror = hub.registry.mirrors, kept(hub)
    kept(hub, seen(sha="ef" * 20))
    kept(hub, seen(files={}))
    found = mirrors.revision(mirror, "main")
    assert found is not None
    assert found[0] == SHA
    assert mirrors.commit(mirror, SHA).files == seen().files


def test_a_name_has_one_source(hub: Stand) -> None:
    kept(hub)
    with pytest.raises(Conflict, match="not from https://other"):
        hub.registry.mirrors.keep("model", OTHER, "main", seen(), None)
    hub.make("ada/card")
    assert hub.registry.mirrors.local("model", "Ada/another")
    for name in ("ada/another", "library/rivers"):
        with pytest.raises(Conflict, match="belongs to this hub"):
            kept(hub, seen(name))
    with pytest.raises(Conflict, match="is mirrored from"):
        OwnCards(hub.registry.database, hub.registry.blobs).rename("Acme")


def test_a_file_is_reserved_within_the_limit_stored_and_deleted_with_its_mirror(hub: Stand) -> None:
    mirrors, mirror = hub.registry.mirrors, kept(hub)
    before = mirrors.used()
    assert not mirrors.reserve(mirror, OID, 4, before + 3)
    assert mirrors.reserve(mirror, OID, 4, before + 4)
    assert mirrors.used() == before + 4
    assert mirrors.file(mirror, OID) is None
    mirrors.stored(mirror, OID, SHA256)
    put_stream(hub.registry.blobs, io.BytesIO(b"test"), SHA256, "test")
    found = mirrors.file(mirror, OID)
    assert found is not None
    assert found.sha256 == SHA256
    assert hub.registry.gc() == []
    assert [(size.mirror.name, size.files, size.size) for size in mirrors.list()] == [("acme/Model", 1, 4)]
    mirrors.remove("model", "acme/model")
    assert not hub.registry.blobs.holds(SHA256)
    assert mirrors.used() == 0


def test_a_failure_holds_for_a_while(hub: Stand) -> None:
    mirrors, mirror = hub.registry.mirrors, kept(hub)
    mirrors.failed(mirror, OID, 502, "broken", now() + timedelta(minutes=1))
    found = mirrors.file(mirror, OID)
    assert found is not None
    assert (found.status, found.error) == (502, "broken")
    mirrors.failed(mirror, OID, 502, "broken", now() - timedelta(seconds=1))
    assert mirrors.file(mirror, OID) is None


def test_access_is_remembered_for_each_account(hub: Stand) -> None:
    mirrors, account = hub.registry.mirrors, hub.who("ada").account_id
    mirror = kept(hub, seen(open=False, gated="manual"), account)
    assert mirrors.access(mirror, account) is not None
    assert mirrors.access(mirror, account + 1) is None
    mirrors.deny(mirror, account)
    assert mirrors.access(mirror, account) is None


def test_a_backup_has_no_mirrors(hub: Stand, tmp_path: Path) -> None:
    kept(hub)
    hub.make("ada/card")
    hub.registry.backup(tmp_path / "hub.tar")
    restored = Hub(tmp_path / "restored")
    restored.restore(tmp_path / "hub.tar")
    assert restored.mirrors.list() == []


def test_the_commands_list_and_remove_mirrors(home: Path) -> None:
    with stand(home) as hub:
        kept(hub)
    assert "acme/Model  model  https://hub.example  0 files" in run("hub", "mirrors")
    assert '"upstream": "https://hub.example"' in run("hub", "mirrors", "--json")
    assert "no longer mirrored" in run("hub", "unmirror", "acme/Model")
    assert run("hub", "mirrors") == ""


def run(*command: str) -> str:
    return CliRunner().invoke(app, [*command]).stdout
