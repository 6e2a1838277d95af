"""Several processes on one hub, kills, and a disk that refuses: nothing half done, nothing lost."""

import contextlib
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from kcard.errors import HubError
from kcard.hub.registry import Hub
from kcard.manifest import Manifest, seal
from tests.hub.stand import refused_by_the_disk

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
        [card(tmp_path / f"{who}{i}", "oncology", weight=10 * who + i) for i in range(2)] for who in (1, 2)
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
    assert [v.number for v in published] == [1, 2, 3, 4]
    assert {v.sha256 for v in published} == {sha(folder) for folders in drafts for folder in folders}
    assert len(hub.versions("hearts")) == 1
    assert hub.verify() == []


def in_parallel(*work: Callable[[], object]) -> list[BaseProcess]:
    """Children that have what is imported here, and begin at the same moment."""
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(len(work) + 1)

    def begin(each: Callable[[], object]) -> None:
        barrier.wait(60)
        each()

    processes: list[BaseProcess] = [fork.Process(target=begin, args=(each,)) for each in work]
    for process in processes:
        process.start()
    barrier.wait(60)
    return processes


def test_four_processes_that_publish_remove_and_clean_up_at_once_lose_nothing(
    home: Path, tmp_path: Path
) -> None:
    # Every draft shares its config.json with all others, and its weights with one of another process.
    drafts = [
        [card(tmp_path / f"{who}-{i}", f"card{who}", weight=who // 2 + 10 * i) for i in range(4)]
        for who in range(4)
    ]
    Hub(home).database.close()

    def work(folders: list[Path]) -> None:
        """Publish them and remove every second one, cleaning up all the while."""
        hub = Hub(home)
        for number, folder in enumerate(folders):
            version = hub.publish(folder)
            hub.folder(version.reference)
            if number % 2:
                hub.remove(version.reference)
            hub.gc()

    processes = in_parallel(*(partial(work, folders) for folders in drafts))
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    hub = Hub(home)
    for who, folders in enumerate(drafts):
        assert [v.number for v in hub.versions(f"card{who}")] == [1, 3]
        assert [v.sha256 for v in hub.versions(f"card{who}")] == [sha(folder) for folder in folders[::2]]
    assert hub.verify() == []
    assert hub.gc() == []


def sha(folder: Path) -> str:
    from kcard.manifest import MANIFEST, file_digest

    return file_digest(folder / MANIFEST)


def test_removing_while_another_publishes_the_same_files_loses_nothing(home: Path, tmp_path: Path) -> None:
    coming_and_going = card(tmp_path / "a", "shared", weight=7)
    Hub(home).database.close()

    def come_and_go() -> None:
        hub = Hub(home)
        for _ in range(12):
            hub.publish(coming_and_going)
            hub.remove("shared")

    (process,) = in_parallel(come_and_go)
    hub = Hub(home)
    rounds = 0
    while process.is_alive() or rounds < 3:
        name = f"keeper{rounds}"
        hub.publish(card(tmp_path / "b", name, weight=7))
        assert hub.verify(name) == []
        hub.remove(name)
        rounds += 1
    process.join()
    assert process.exitcode == 0
    assert hub.list() == []
    assert list((home / "hub" / "blobs").glob("*/*")) == []


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on a file's size")
def test_a_disk_that_refuses_leaves_the_hub_as_it_was(home: Path, tmp_path: Path) -> None:
    hub = Hub(home)
    first = hub.publish(card(tmp_path / "small", "oncology", weight=1))
    before = sorted((home / "hub" / "blobs").glob("*/*"))
    large = card(tmp_path / "large", "oncology", weight=2, numbers=200_000)
    message = refused_by_the_disk(lambda: Hub(home).publish(large), 300_000)
    assert message.count("\n") == 0
    assert "can't publish" in message
    assert "File too large" in message
    assert "free some space" in message
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
        (disk / "ballast").write_bytes(b"")
        with contextlib.suppress(OSError), (disk / "ballast").open("wb", buffering=0) as stream:
            while stream.write(b"x" * 4096):
                pass
        with pytest.raises(HubError, match=r"(?i)no space|full"):
            hub.publish(large)
        (disk / "ballast").unlink()
        assert hub.versions("oncology") == [first]
        assert hub.verify() == []
        assert hub.gc() == []
        assert hub.publish(card(tmp_path / "small", "oncology", weight=3)).number == 2
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# A process killed between any two steps leaves the hub whole; tests/hub/kills.py kills and looks.


ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL")


def kill(folder: Path, every: int, *operations: str) -> list[tuple[str, str]]:
    """Make the kills; the operation and the effect of each."""
    command = [sys.executable, "-m", "tests.hub.kills", folder, every, *operations]
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, cwd=ROOT)
    output = json.loads(done.stdout)
    assert output["wrong"] == [], done.stderr
    return [(operation, effect) for operation, effect in output["kills"]]


def test_a_kill_here_and_there_leaves_the_hub_whole(tmp_path: Path) -> None:
    assert len(kill(tmp_path, 25, "publish a version", "remove a version", "gc")) >= 4


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_before_every_effect_of_every_operation_leaves_the_hub_whole(tmp_path: Path) -> None:
    killed = kill(tmp_path, every=1)
    assert len(killed) >= 300
    assert {"commit", "insert", "end"} <= {effect for _, effect in killed}
    assert {"rename", "unlink", "link"} <= {effect.partition("-")[0] for _, effect in killed}
