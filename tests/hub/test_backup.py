"""Backups as docs/hub.md makes them: a copy of the database and the blobs; and who may read a hub's files."""

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kcard.hub.db.session import Database
from kcard.hub.registry import Hub
from kcard.hub.services import HubServices
from tests.hub.stand import seal_card


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    """Two versions of one card, with a gap and an alias, and one of another; a pool."""
    hub = Hub(home)
    for number in range(3):
        hub.publish(seal_card(tmp_path / "a", "oncology", str(number)))
    hub.remove("oncology@v2")
    hub.alias("oncology@v1", "stable")
    hub.publish(seal_card(tmp_path / "b", "hearts"))
    hub.pools.create("clinic", ["oncology@v1", "hearts"])
    return hub


def back_up(hub: Hub, target: Path) -> None:
    """What `sqlite3 hub.db ".backup FILE"` and a copy of the blobs do."""
    (target / "hub").mkdir(parents=True)
    with (
        closing(sqlite3.connect(hub.home / "hub" / "hub.db")) as source,
        closing(sqlite3.connect(target / "hub" / "hub.db")) as copy,
    ):
        source.backup(copy)
    shutil.copytree(hub.home / "hub" / "blobs", target / "hub" / "blobs")


def test_a_copy_of_database_and_blobs_is_the_whole_hub(hub: Hub, tmp_path: Path) -> None:
    serving = HubServices(hub.home)
    serving.accounts.add_user("ada")
    token = serving.tokens.create("ada")
    hub.quarantine.set(0.5)
    back_up(hub, tmp_path / "copy")
    copy = HubServices(tmp_path / "copy")
    assert [copy.registry.versions(card.name) for card in hub.list()] == [
        hub.versions(card.name) for card in hub.list()
    ]
    assert copy.registry.pools.list() == hub.pools.list()
    assert copy.registry.quarantine.threshold == 0.5
    assert copy.tokens.identify(token) is not None
    assert copy.registry.verify() == []
    assert copy.registry.publish(seal_card(tmp_path / "a", "oncology", "new")).number == 4


def test_no_copy_of_the_database_has_the_secret_and_each_hub_has_its_own(hub: Hub, tmp_path: Path) -> None:
    secret = HubServices(hub.home).secret
    assert HubServices(hub.home).secret == secret
    assert mode(hub.home / "hub" / "secret") == 0o600
    back_up(hub, tmp_path / "copy")
    copied = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert not [path for path in copied if secret.hex().encode() in path.read_bytes()]
    restored = HubServices(tmp_path / "copy").secret
    assert len(restored) == len(secret)
    assert restored != secret


# Who may read the files of a hub on its disk: its owner, whatever the umask says.


@pytest.fixture
def open_umask() -> Iterator[None]:
    if sys.platform == "win32":
        pytest.skip("Windows has no such modes")
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.usefixtures("open_umask")
def test_a_new_hub_is_for_its_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    hub = Hub(home)
    with hub.database.write():  # the files beside it exist while it is in use
        modes = {path.name: mode(path) for path in (home / "hub").glob("hub.db*")}
    assert modes.keys() >= {"hub.db", "hub.db-wal", "hub.db-shm"}
    assert {*modes.values()} == {0o600}
    assert mode(home / "hub") == 0o700


@pytest.mark.usefixtures("open_umask")
def test_a_mode_that_the_owner_chose_stays(tmp_path: Path) -> None:
    Database(tmp_path / "hub.db").close()
    (tmp_path / "hub.db").chmod(0o640)
    Database(tmp_path / "hub.db").close()
    assert mode(tmp_path / "hub.db") == 0o640
