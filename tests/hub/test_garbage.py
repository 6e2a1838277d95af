"""What no version needs is found, counted and deleted; what somebody is writing is not."""

import subprocess
import sys
from pathlib import Path

import pytest

from kcard.hub.db.session import Database
from kcard.hub.garbage import Garbage
from kcard.hub.publications import LocalCards
from kcard.hub.registry import Hub
from kcard.hub.storage import partial_folder
from kcard.manifest import Manifest, seal

HOLD = """
import sys, time
from pathlib import Path
from kcard.hub.storage import partial_folder
with partial_folder(Path(sys.argv[1])) as folder:
    (folder / "blob").write_bytes(b"half" * 100)
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def hub(home: Path, tmp_path: Path) -> Hub:
    hub = Hub(home)
    for name in ("oncology", "hearts"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(name * 1000, encoding="utf-8")
        seal(folder, Manifest(name=name, description="Tumours"))
        hub.publish(folder)
        hub.folder(name)
    return hub


def cut_short(hub: Hub, name: str) -> None:
    """Remove a card as a process does that is killed before it has deleted the files."""
    LocalCards(Database(hub.home / "hub" / "hub.db"), hub.blobs).remove(hub.versions(name))


def kinds(removed: list[Garbage]) -> list[str]:
    return sorted(garbage.what for garbage in removed)


def test_what_a_killed_removal_left_is_counted_and_deleted(hub: Hub) -> None:
    version = hub.get("oncology")
    cut_short(hub, "oncology")
    would = hub.gc(dry_run=True)
    assert kinds(would) == ["file", "file", "snapshot"]
    # The snapshot's files are the blobs by another name: they free nothing more.
    assert sum(garbage.size for garbage in would) == version.size
    assert all(Path(garbage.where).exists() for garbage in would)
    assert hub.gc() == would
    assert not any(Path(garbage.where).exists() for garbage in would)
    assert hub.gc() == []
    assert hub.verify() == []
    assert hub.folder("hearts").is_dir()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no locks on folders")
def test_remains_of_a_killed_process_go_at_once_and_what_is_being_written_stays(hub: Hub) -> None:
    command = [sys.executable, "-c", HOLD, str(hub.partial)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert hub.gc() == []
        assert folder.is_dir()
        process.kill()
        process.wait()
    assert hub.gc(dry_run=True) == [Garbage("remains", str(folder), 400)]
    hub.gc()
    assert not folder.exists()


def test_a_partial_folder_is_gone_when_its_block_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with partial_folder(tmp_path / "partial"):
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / "partial").iterdir()) == []
