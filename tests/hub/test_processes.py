"""Several processes on one hub, and a disk that refuses: nothing half done, nothing lost."""

import contextlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from kcard.errors import HubError
from kcard.hub.registry import Hub
from kcard.manifest import Manifest, seal

# Both wait for the same file to appear, so that they open the hub and publish at the same moment.
PUBLISH = """
import sys, time
from pathlib import Path
from kcard.hub import registry
from kcard.hub import publications as own_cards  # what takes long to import
start = Path(sys.argv[1])
print("ready", flush=True)
while not start.exists():
    time.sleep(0.001)
for folder in sys.argv[2:]:
    registry.Hub().publish(folder)
"""

REMOVE = """
import sys
from kcard.hub.registry import Hub
from kcard.errors import UnknownCard
start, folder, name, rounds = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
hub = Hub()
print("ready", flush=True)
for _ in range(rounds):
    hub.publish(folder)
    hub.remove(name)
"""

# Publishes its own folders and removes every second one, cleaning up all the while.
EVERYTHING = """
import sys, time
from pathlib import Path
from kcard.hub.registry import Hub
start = Path(sys.argv[1])
print("ready", flush=True)
while not start.exists():
    time.sleep(0.001)
hub = Hub()
for number, folder in enumerate(sys.argv[2:]):
    version = hub.publish(folder)
    hub.folder(version.reference)
    if number % 2:
        hub.remove(version.reference)
    hub.gc()
"""

# Bytes beyond this limit are refused by the system as on a full disk, with another number.
LIMITED = """
import resource, sys
from kcard.errors import HubError
from kcard.hub.registry import Hub
hub = Hub()
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    hub.publish(sys.argv[1])
except HubError as error:
    print(error)
"""


def card(folder: Path, name: str, weight: float, numbers: int = 64) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({"weight": np.full(numbers, weight, dtype=np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "opt"}', encoding="utf-8")
    seal(folder, Manifest(name=name, description="Tumours"))
    return folder


def start(code: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(processes: "list[subprocess.Popen[str]]") -> None:
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")


def test_two_processes_open_a_fresh_hub_and_publish_at_once(home: Path, tmp_path: Path) -> None:
    drafts = [
        [card(tmp_path / f"{who}{i}", "oncology", weight=10 * who + i) for i in range(3)] for who in (1, 2)
    ]
    same = card(tmp_path / "same", "hearts", weight=0)
    processes = [start(PUBLISH, tmp_path / "go", *folders, same) for folders in drafts]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    finish(processes)
    hub = Hub(home)
    published = hub.versions("oncology")
    assert [v.number for v in published] == [1, 2, 3, 4, 5, 6]
    assert {v.sha256 for v in published} == {sha(folder) for folders in drafts for folder in folders}
    assert len(hub.versions("hearts")) == 1
    assert hub.verify() == []


def test_four_processes_that_publish_remove_and_clean_up_at_once_lose_nothing(
    home: Path, tmp_path: Path
) -> None:
    # Every draft shares its config.json with all others, and its weights with one of another process.
    drafts = [
        [card(tmp_path / f"{who}-{i}", f"card{who}", weight=who // 2 + 10 * i) for i in range(6)]
        for who in range(4)
    ]
    processes = [start(EVERYTHING, tmp_path / "go", *folders) for folders in drafts]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    finish(processes)
    hub = Hub(home)
    for who, folders in enumerate(drafts):
        assert [v.number for v in hub.versions(f"card{who}")] == [1, 3, 5]
        assert [v.sha256 for v in hub.versions(f"card{who}")] == [sha(folder) for folder in folders[::2]]
    assert hub.verify() == []
    assert hub.gc() == []


def sha(folder: Path) -> str:
    from kcard.manifest import MANIFEST, file_digest

    return file_digest(folder / MANIFEST)


def test_removing_while_another_publishes_the_same_files_loses_nothing(home: Path, tmp_path: Path) -> None:
    Hub(home)
    coming_and_going = card(tmp_path / "a", "shared", weight=7)
    process = start(REMOVE, tmp_path / "go", coming_and_going, "shared", 40)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    hub = Hub(home)
    rounds = 0
    while process.poll() is None or rounds < 3:
        name = f"keeper{rounds}"
        hub.publish(card(tmp_path / "b", name, weight=7))
        assert hub.verify(name) == []
        hub.remove(name)
        rounds += 1
    finish([process])
    assert hub.list() == []
    assert list((home / "hub" / "blobs").glob("*/*")) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a file's size")
def test_a_disk_that_refuses_leaves_the_hub_as_it_was(home: Path, tmp_path: Path) -> None:
    hub = Hub(home)
    first = hub.publish(card(tmp_path / "small", "oncology", weight=1))
    before = sorted((home / "hub" / "blobs").glob("*/*"))
    large = card(tmp_path / "large", "oncology", weight=2, numbers=200_000)
    done = subprocess.run([sys.executable, "-c", LIMITED, large], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    assert "can't publish" in done.stdout
    assert "File too large" in done.stdout
    assert "free some space" in done.stdout
    assert hub.versions("oncology") == [first]
    assert sorted((home / "hub" / "blobs").glob("*/*")) == before
    assert list((home / "hub" / "partial").iterdir()) == []
    assert hub.publish(large).number == 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a small file system of its own")
def test_a_full_file_system_is_one_clear_error_and_the_hub_is_as_it_was(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        hub = Hub(disk / "home")
        first = hub.publish(card(tmp_path / "small", "oncology", weight=1))
        large = card(tmp_path / "large", "oncology", weight=2, numbers=1_000_000)
        for deed in (lambda: hub.publish(large), lambda: hub.backup(disk / "backup.tar")):
            (disk / "ballast").write_bytes(b"")
            with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as stream:
                while stream.write(b"x" * 4096):
                    pass
            with pytest.raises(HubError, match=r"(?i)no space|full"):
                deed()
            (disk / "ballast").unlink()
            assert hub.versions("oncology") == [first]
            assert hub.verify() == []
            assert hub.gc() == []
        assert not (disk / "backup.tar").exists()
        assert hub.publish(card(tmp_path / "small", "oncology", weight=3)).number == 2
    finally:
        subprocess.run(["umount", str(disk)], check=True)
