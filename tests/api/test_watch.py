"""Watching a folder: one sync after each change, once it has settled; a failure is told and the watch goes on."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kcard as library
from kcard.api.sync import SyncResult, watch
from kcard.errors import KcardError, TrainingInterrupted, UsageError
from tests.corpora import town_facts, write_texts

FACTS = town_facts(6, 1)


class Stopped(Exception):
    pass


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    write_texts(folder / "towns.txt", FACTS)
    library.train(folder, kind="retrieval", name="towns", description="Towns")
    return folder


def follow(notes: Path, *steps: Callable[[], object]) -> tuple[list[SyncResult], list[KcardError]]:
    """Watch; between two looks at the folder one step is taken, and after the last the watch ends."""
    done: list[SyncResult] = []
    failed: list[KcardError] = []
    left = [*steps]

    def wait(_: float) -> None:
        if not left:
            raise Stopped
        left.pop(0)()

    with pytest.raises(Stopped):
        watch(notes, "towns", done=done.append, failed=failed.append, wait=wait, publish=False)
    return done, failed


def nothing() -> None:
    pass


def add(notes: Path, number: int) -> Callable[[], object]:
    path = notes / f"more{number}.txt"
    return lambda: path.write_text(f"The mill of town {number} is white.\n", encoding="utf-8")


def test_it_syncs_at_once_and_after_each_change(notes: Path) -> None:
    done, failed = follow(notes, nothing, add(notes, 1), nothing, nothing, add(notes, 2), nothing, nothing)
    assert [len(found.changes.corpus.passages) for found in done] == [6, 7, 8]
    assert failed == []


def test_changes_that_follow_each_other_are_one_sync(notes: Path) -> None:
    done, _ = follow(notes, add(notes, 1), add(notes, 2), add(notes, 3), nothing, nothing)
    assert [len(found.changes.added) for found in done] == [0, 3]


def test_a_failed_sync_is_told_once_and_the_watch_goes_on(notes: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    done, failed = follow(
        notes,
        lambda: notes.rename(away),
        nothing,
        nothing,
        nothing,
        lambda: (away.rename(notes), add(notes, 1)()),
        nothing,
        nothing,
    )
    assert ["does not exist" in str(error) for error in failed] == [True]
    assert [len(found.changes.added) for found in done] == [0, 1]


def test_training_that_ctrl_c_stops_ends_the_watch(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> SyncResult:
        raise TrainingInterrupted("stopped")

    monkeypatch.setattr("kcard.api.sync.sync", stopped)
    with pytest.raises(TrainingInterrupted):
        watch(notes, "towns", done=lambda _: None, failed=lambda _: None)


def test_an_interval_must_be_above_zero(notes: Path) -> None:
    with pytest.raises(UsageError, match="interval"):
        watch(notes, "towns", interval=0, done=lambda _: None, failed=lambda _: None)


def test_ctrl_c_ends_the_command_without_an_error(notes: Path) -> None:
    words = ["sync", str(notes), "--card", "towns", "--watch", "--interval", "0.2"]
    command = [sys.executable, "-m", "kcard", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert "0 added" in run.stdout.readline()
        add(notes, 1)()
        assert "mill of town 1" in run.stdout.readline()
        for _ in range(2):
            run.stdout.readline()
        time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=30)
    assert run.returncode == 0, err
    assert f"stopped watching {notes}" in err
    assert "Traceback" not in err
