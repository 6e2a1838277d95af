"""Several processes on one hub, kills, and a disk that refuses: nothing half done, nothing lost."""

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
from safetensors.numpy import save

from kcard.hub.registry import Hub
from kcard.manifest import MANIFEST, file_digest
from tests.hub.stand import refused_by_the_disk, seal_card

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork and no SIGKILL")


def card(folder: Path, name: str, weight: float, numbers: int = 64) -> Path:
    files = {"model.safetensors": save({"weight": np.full(numbers, weight, dtype=np.float32)})}
    return seal_card(folder, name, files=files | {"config.json": b'{"model_type": "opt"}'})


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


def test_four_processes_that_open_publish_remove_and_clean_up_at_once_lose_nothing(
    home: Path, tmp_path: Path
) -> None:
    # Every draft shares its config.json with all others, and its weights with one of another process.
    drafts = [
        [card(tmp_path / f"{who}-{i}", f"card{who}", weight=who // 2 + 10 * i) for i in range(4)]
        for who in range(4)
    ]
    same = card(tmp_path / "same", "hearts", weight=0)

    def work(folders: list[Path]) -> None:
        """Publish them and remove every second one, cleaning up all the while."""
        hub = Hub(home)
        hub.publish(same)
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
        versions = hub.versions(f"card{who}")
        assert [v.number for v in versions] == [1, 3]
        assert [v.sha256 for v in versions] == [file_digest(folder / MANIFEST) for folder in folders[::2]]
    assert len(hub.versions("hearts")) == 1
    assert hub.verify() == []
    assert hub.gc() == []


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


def test_a_disk_that_refuses_leaves_the_hub_and_a_pull_as_they_were(home: Path, tmp_path: Path) -> None:
    hub = Hub(home)
    first = hub.publish(card(tmp_path / "small", "oncology", weight=1))
    before = sorted((home / "hub" / "blobs").glob("*/*"))
    large = card(tmp_path / "large", "oncology", weight=2, numbers=200_000)
    message = refused_by_the_disk(lambda: Hub(home).publish(large), 300_000)
    assert message.count("\n") == 0
    for words in ("can't publish", "File too large", "free some space"):
        assert words in message
    assert hub.versions("oncology") == [first]
    assert sorted((home / "hub" / "blobs").glob("*/*")) == before
    assert list((home / "hub" / "partial").iterdir()) == []
    assert hub.publish(large).number == 2
    message = refused_by_the_disk(lambda: Hub(home).pull("oncology", tmp_path / "new"), 300_000)
    assert "File too large" in message
    assert not (tmp_path / "new").exists()
    assert list(tmp_path.glob(".*kcard-*")) == []
    assert hub.gc() == []


# A process killed between any two steps leaves the hub whole; tests/hub/kills.py kills and looks.


def kill(folder: Path, every: int, *operations: str) -> list[tuple[str, str]]:
    """Make the kills; the operation and the effect of each."""
    command = [sys.executable, "-m", "tests.hub.kills", folder, every, *operations]
    done = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True, cwd=ROOT)
    output = json.loads(done.stdout)
    assert output["wrong"] == [], done.stderr
    return [(operation, effect) for operation, effect in output["kills"]]


def test_a_kill_here_and_there_leaves_the_hub_whole(tmp_path: Path) -> None:
    assert len(kill(tmp_path, 12, "publish a version", "remove a version", "gc")) >= 4


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_kill_before_every_effect_of_every_operation_leaves_the_hub_whole(tmp_path: Path) -> None:
    killed = kill(tmp_path, every=1)
    assert len(killed) >= 200
    assert {"commit", "insert", "end"} <= {effect for _, effect in killed}
    assert {"rename", "unlink", "link"} <= {effect.partition("-")[0] for _, effect in killed}
