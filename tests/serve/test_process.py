"""`kcard serve` as a user starts it: it answers, comes back after a crash, and ends with Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

QUESTION = {"model": "embedded", "messages": [{"role": "user", "content": "Who discovered Triton?"}]}


@pytest.fixture
def served(library: Path, tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    command = [sys.executable, "-m", "kcard", "serve", "--port", "0"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            env=os.environ | {"KCARD_HOME": str(library)},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving on http://127.0.0.1:"), (tmp_path / "log").read_text()
        yield process, line.removeprefix("serving on ").strip()
        process.kill()
        process.wait()
        process.stdout.close()


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(line) for line in found.split()]


def answer(url: str) -> str:
    reply: Any = httpx.post(f"{url}/chat/completions", json=QUESTION, timeout=60).json()
    return str(reply["choices"][0]["message"]["content"])


@pytest.mark.slow
def test_a_process_that_is_killed_is_started_again_and_ctrl_c_ends_all(
    served: tuple["subprocess.Popen[str]", str],
) -> None:
    process, url = served
    assert answer(url) == "William Lassell"
    workers = [
        pid for pid in children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    (worker,) = workers
    os.kill(worker, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while True:
        try:
            assert answer(url) == "William Lassell"
            break
        except httpx.HTTPError:  # what was in flight is told; nothing hangs
            assert time.monotonic() < deadline
            time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keys", "none.toml"], "keys none.toml can't be read"),
        (["--largest", "much"], "much"),
        (["--waiting", "0"], "waiting"),
        (["--llm", "openai"], "openai"),
    ],
)
def test_a_wrong_option_is_told_before_anything_is_served(
    kcard: Any, arguments: list[str], message: str
) -> None:
    done = kcard("serve", "--port", "0", *arguments)
    assert done.code != 0
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_key_is_printed_once_and_kept_as_its_digest(kcard: Any, tmp_path: Path) -> None:
    done = kcard("serve-key", "alice", "--keys", tmp_path / "keys.toml")
    assert done.code == 0
    assert done.out.startswith("kc_")
    assert done.out.strip() not in (tmp_path / "keys.toml").read_text()
    again = kcard("serve-key", "alice", "--keys", tmp_path / "keys.toml")
    assert again.code != 0
    assert "already" in again.err
