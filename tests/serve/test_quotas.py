"""What holders of keys have spent is shared by processes and outlives them."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kcard.errors import UsageError
from kcard.serve.errors import Busy, RateLimited
from kcard.serve.keys import Key, Keys, add_key
from kcard.serve.quotas import DAY, Quotas


class Clock:
    def __init__(self) -> None:
        self.now = 20_000 * DAY + 60.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quotas(tmp_path: Path, clock: Clock) -> Quotas:
    return Quotas(tmp_path / "spent.sqlite", clock)


def test_tokens_are_those_of_the_day(quotas: Quotas, clock: Clock) -> None:
    quotas.spend("alice", 70)
    quotas.spend("alice", 20)
    quotas.spend("bob", 5)
    assert (quotas.tokens("alice"), quotas.tokens("bob"), quotas.tokens("carol")) == (90, 5, 0)
    assert quotas.until_tomorrow() == DAY - 60
    clock.now += DAY
    assert quotas.tokens("alice") == 0
    quotas.spend("alice", 3)
    assert quotas.tokens("alice") == 3


def test_a_bucket_holds_five_minutes_of_requests_and_fills_again(quotas: Quotas, clock: Clock) -> None:
    assert [quotas.take("alice", 6) for _ in range(30)] == [0] * 30
    assert quotas.take("alice", 6) == 10
    clock.now += 10
    assert (quotas.take("alice", 6), quotas.take("alice", 6)) == (0, 10)


def test_a_clock_that_was_set_back_locks_nobody_out(quotas: Quotas, clock: Clock) -> None:
    for _ in range(30):
        quotas.take("alice", 6)
    clock.now -= 10 * DAY
    assert [quotas.take("alice", 6) for _ in range(31)] == [0] * 30 + [10]


def test_processes_that_share_a_file_allow_together_what_one_would(tmp_path: Path, clock: Clock) -> None:
    allowed: list[int] = []

    def work() -> None:
        own = Quotas(tmp_path / "spent.sqlite", clock)
        for _ in range(20):
            allowed.append(own.take("alice", 10))
            own.spend("alice", 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert allowed.count(0) == 50
    assert Quotas(tmp_path / "spent.sqlite", clock).tokens("alice") == 80


def test_what_a_killed_process_counted_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    key = add_key(path, Key("alice", tokens_per_day=10, requests_per_minute=60))
    code = (
        "import sys, time; from pathlib import Path; from kcard.serve.keys import Keys\n"
        "keys = Keys(Path(sys.argv[1]))\n"
        "keys.spend(keys.check('Bearer ' + sys.argv[2]), 10)\n"
        "print('spent', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path), key], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "spent\n"
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(RateLimited, match="has spent its 10 tokens"):
        Keys(path).check(f"Bearer {key}")


def test_files_that_name_the_same_holder_count_apart(tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    keys = [(Keys(path), key) for path in (first, second) for key in [add_key(path, Key("a", None, 5))]]
    keys[0][0].spend(keys[0][0].check(f"Bearer {keys[0][1]}"), 5)
    assert keys[1][0].check(f"Bearer {keys[1][1]}").name == "a"
    with pytest.raises(RateLimited):
        keys[0][0].check(f"Bearer {keys[0][1]}")


def test_a_damaged_file_is_told_at_the_start_and_a_503_later(tmp_path: Path) -> None:
    path, spent = tmp_path / "keys.toml", tmp_path / "spent.sqlite"
    key = add_key(path, Key("alice", tokens_per_day=10))
    spent.write_bytes(b"no database, " * 100)
    with pytest.raises(UsageError, match=r"can't be kept in .*spent\.sqlite"):
        Keys(path, spent)
    keys = Keys(path, tmp_path / "other.sqlite")
    for file in tmp_path.glob("other.sqlite*"):
        file.write_bytes(b"no database, " * 100)
    with pytest.raises(Busy, match="can't be checked"):
        keys.check(f"Bearer {key}")
    keys.spend(Key("alice", tokens_per_day=10), 3)  # logged
