"""`kcard serve` as a user starts it: it answers, comes back after a crash, as does its LLM, and ends with Ctrl-C."""

import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from kcard.hub.registry import Hub
from kcard.integrators.options import AskOptions
from kcard.serve.app import create_app
from kcard.serve.run import check_llm
from tests.command import Kcard, kcard_process
from tests.openai_script import ScriptedServer
from tests.serve.conftest import DISCOVERER, answer, ask, error, running, service_before


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
    pids = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return [int(line) for line in pids.split()]


class Load:
    """Clients that ask one question after another; `told`: status codes, 0 where the connection was lost."""

    def __init__(self, url: str, model: str, clients: int = 8) -> None:
        self._url, self._model = url, model
        self.told: list[int] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self._threads), "a client hangs"

    def wait_for(self, statuses: set[int], count: int = 8, seconds: float = 90) -> None:
        """Until so many of the replies from now on have one of these statuses."""
        start, deadline = len(self.told), time.monotonic() + seconds
        while sum(status in statuses for status in self.told[start:]) < count:
            assert time.monotonic() < deadline, self.told[start:]
            time.sleep(0.05)

    def _ask(self, number: int) -> None:
        for nth in itertools.count():
            if self._ended.is_set():
                return
            question = f"Who discovered Triton? Asked by {number}, {nth}."  # not one that was answered before
            try:
                reply = ask(self._url, question, self._model)
                if reply.status_code != 200:
                    assert error(reply)["type"] == "server_error"
                self.told.append(reply.status_code)
            except httpx.HTTPError:
                self.told.append(0)
                time.sleep(0.2)


@pytest.mark.slow
def test_a_process_that_is_killed_under_load_is_started_again_and_ctrl_c_ends_all(
    served: tuple["subprocess.Popen[str]", str],
) -> None:
    process, url = served
    assert answer(ask(url)) == DISCOVERER
    workers = [
        pid for pid in children(process.pid) if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    (worker,) = workers
    with Load(url, "embedded") as load:
        load.wait_for({200})
        os.kill(worker, signal.SIGKILL)
        load.wait_for({200})
    assert set(load.told) == {0, 200}  # what was in flight is told; nothing hangs
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert not Path(f"/proc/{worker}").exists()


@pytest.mark.slow
def test_an_llm_that_is_killed_under_load_is_told_and_used_again_when_it_is_back(
    library: Path, tmp_path: Path
) -> None:
    script, port = tmp_path / "script.json", tmp_path / "port"
    script.write_text(json.dumps([{"text": "William Lassell.", "delay": 0.1}]), encoding="utf-8")
    code = Path(__file__).parents[1] / "openai_script.py"

    def start(*arguments: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, str(code), str(script), str(port), *arguments])

    llm = start()
    while not port.exists():
        time.sleep(0.02)
    llm_url = f"http://127.0.0.1:{port.read_text()}/v1"
    service = service_before(llm_url, library, timeout=5)
    try:
        with running(create_app(service)) as url, Load(url, "big") as load:
            load.wait_for({200})
            llm.kill()
            load.wait_for({502})
            llm.wait()
            llm = start(port.read_text())
            load.wait_for({200})
        assert set(load.told) <= {200, 502}
    finally:
        llm.kill()
        llm.wait()


def test_an_llm_that_does_not_answer_is_told_before_the_endpoint_is_ready() -> None:
    options = AskOptions(llm_url="http://127.0.0.1:9/v1")
    told = check_llm("openai:big", options)
    assert told.startswith("no LLM answers at http://127.0.0.1:9/v1 (")
    assert "refused" in told
    assert "start its server, or correct --llm-url" in told
    llm = ScriptedServer([]).start()
    assert check_llm("openai:big", AskOptions(llm_url=llm.url)) == ""
    llm.kill()
    assert check_llm("embedded", options) == ""


def test_a_hub_that_can_not_be_opened_is_one_line_and_no_endpoint(tmp_path: Path) -> None:
    Hub(tmp_path).database.close()
    with closing(sqlite3.connect(tmp_path / "hub" / "hub.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    done = kcard_process("serve", "--port", "0", KCARD_HOME=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "has schema 9999 of a newer kcard" in line
    assert "Traceback" not in done.stderr


def test_a_key_is_printed_once_and_kept_as_its_digest(kcard: Kcard, tmp_path: Path) -> None:
    done = kcard("serve-key", "alice", "--keys", tmp_path / "keys.toml")
    assert done.code == 0
    assert done.out.startswith("kc_")
    assert done.out.strip() not in (tmp_path / "keys.toml").read_text()
    again = kcard("serve-key", "alice", "--keys", tmp_path / "keys.toml")
    assert again.code != 0
    assert "already" in again.err
