"""Who may read the files of a hub on its disk: its owner, whatever the umask says."""

import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kcard.hub.db.session import Database
from kcard.hub.registry import Hub

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_hub_is_for_its_owner_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    hub = Hub(home)
    with hub.database.write():  # the files beside it exist while it is in use
        modes = {path.name: mode(path) for path in (home / "hub").glob("hub.db*")}
    assert modes.keys() >= {"hub.db", "hub.db-wal", "hub.db-shm"}
    assert {*modes.values()} == {0o600}
    assert mode(home / "hub") == 0o700


def test_a_mode_that_the_owner_chose_stays(tmp_path: Path) -> None:
    Database(tmp_path / "hub.db").close()
    (tmp_path / "hub.db").chmod(0o640)
    Database(tmp_path / "hub.db").close()
    assert mode(tmp_path / "hub.db") == 0o640


def test_a_backup_is_for_its_owner_only_also_unpacked(tmp_path: Path) -> None:
    backup = Hub(tmp_path / "home").backup(tmp_path / "hub.tar")
    assert mode(backup.path) == 0o600
    with tarfile.open(backup) as tar:
        assert {member.mode for member in tar} == {0o400}
