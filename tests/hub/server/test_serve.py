"""`kcard hub serve` as an operator meets it, and a hub whose database is busy or away."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from kcard.errors import Unavailable
from kcard.hub.db import session
from kcard.hub.db.session import Database
from kcard.hub.server.run import listening
from tests.command import Kcard
from tests.hub.server.attacks import wait_for
from tests.hub.shared_hub import shared_hub

COMMAND = [sys.executable, "-m", "kcard", "hub"]


@dataclass
class Server:
    process: subprocess.Popen[str]
    url: str
    token: str | None
    log: Path

    def workers(self) -> list[int]:
        """The processes that answer; their parent has one more child, which keeps count of resources."""
        pids = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread or a process that has just ended
                for pid in (task / "children").read_text().split():
                    if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        pids.append(int(pid))
        return sorted(pids)


@contextmanager
def served(home: Path, *options: str) -> Iterator[Server]:
    log = home.with_suffix(".log")
    with log.open("a") as errors:
        command = [*COMMAND, "serve", "--port", "0", *options]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )
    try:
        lines: list[str] = []
        while not lines or not lines[-1].startswith("serving on "):
            assert process.stdout is not None
            lines.append(process.stdout.readline())
            assert lines[-1], log.read_text()
        token = lines[0].strip() if len(lines) > 1 else None
        yield Server(process, lines[-1].split()[-1], token, log)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def is_gone(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_hub_from_its_first_start_to_its_second(home: Path) -> None:
    """One long story, because each start takes seconds."""
    with served(home, "--log-format", "json") as server:
        assert server.token is not None
        assert re.fullmatch(r"kc_[A-Za-z0-9_-]{40}", server.token)
        login = {"Authorization": f"Bearer {server.token}"}
        with httpx.Client(base_url=server.url, headers=login, timeout=60) as client:
            who = client.get("/api/whoami-v2").json()
            assert (who["name"], who["auth"]["accessToken"]["role"]) == ("admin", "admin")
            parts = ("status", "database", "blobs", "disk")
            assert client.get("/readyz").json() == dict.fromkeys(parts, "ok")
            # A secret in every place where a client could put one by mistake.
            client.get(f"/api/models/ada/{server.token}?token={server.token}&sig={server.token}")
            client.get("/api/whoami-v2", headers={"X-Request-Id": server.token})
            client.get("/api/whoami-v2", headers={"Authorization": f"Bearer {server.token}x"})

            # A request is logged after it was answered, and the worker that answered it may be the one that is killed.
            wait_for(lambda: '"status": 401' in server.log.read_text(), 30)
            before = server.workers()
            assert len(before) == 2
            os.kill(before[0], signal.SIGKILL)
            wait_for(lambda: len(set(server.workers()) - {before[0]}) == 2, 30)
            assert all(client.get("/healthz").status_code == 200 for _ in range(4))

        with in_flight(server) as (connection, rest):
            server.process.terminate()
            time.sleep(0.5)
            connection.sendall(rest)
            answer = b"".join(iter(partial(connection.recv, 65536), b""))
        assert answer.startswith(b"HTTP/1.1 200"), "a request in flight is finished"
        assert server.process.wait(60) == 0
    log = server.log.read_text()
    assert server.token[3:] not in log
    assert "Bearer kc" not in log
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    requests = [line for line in lines if line["message"] == "request"]
    assert {line.get("account") for line in requests} == {"admin", None}
    assert any("died" in line["message"] for line in lines)
    assert "Traceback" not in log

    left = home / "hub" / "partial" / "upload"  # as an upload to a server that was killed
    left.mkdir(parents=True)
    with served(home, "--workers", "1") as again:
        assert again.token is None  # shown once
        assert not left.exists()
        assert len(again.workers()) == 1
        [worker] = again.workers()
        again.process.kill()  # not even the time to tell the workers
        again.process.wait()
        wait_for(lambda: is_gone(worker), 60)


def test_ctrl_c_ends_it_in_order_though_a_terminal_sends_it_to_every_process(home: Path) -> None:
    with served(home, "--workers", "1") as server:
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(60) == 130
    assert "Traceback" not in server.log.read_text()
    assert server.log.read_text().splitlines()[-1] == "kcard: interrupted"


def test_a_server_that_is_told_to_stop_twice_does_not_wait_for_a_request_in_flight(home: Path) -> None:
    with served(home, "--workers", "1") as server, in_flight(server):
        server.process.terminate()
        time.sleep(1)
        assert server.process.poll() is None
        begun = time.monotonic()
        server.process.terminate()
        assert server.process.wait(60) == 0
        assert time.monotonic() - begun < 25  # and not the 30 s that requests get


@contextmanager
def in_flight(server: Server) -> Iterator[tuple[socket.socket, bytes]]:
    """A request of whose body five bytes have been sent, and the others."""
    body = b'{"content": "# a card", "repoType": "model"}'
    host, port = server.url.removeprefix("http://").split(":")
    head = f"POST /api/validate-yaml HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(
            f"{head}Content-Type: application/json\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n".encode()
        )
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"  # when the hub begins to read the body
        client.sendall(body[:5])
        yield client, body[5:]


def test_a_port_that_is_taken_is_one_line_and_no_hub(home: Path, kcard: Kcard) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = kcard("hub", "serve", "--port", port)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"kcard: can't listen on 127.0.0.1:{port}: Address already in use; choose another --host or --port\n"
    )
    assert not home.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--url", "hub.example.org"], "url 'hub.example.org'"),
        (["--max-file-size", "big"], "size 'big'"),
        (["--host", "no.such.host.invalid"], "can't listen on no.such.host.invalid"),
        (["--database-url", "mysql://ada:s3cr3t@db/hub"], "unsupported database"),
    ],
)
def test_wrong_options_are_one_line_each(options: list[str], message: str, kcard: Kcard) -> None:
    done = kcard("hub", "serve", "--port", "0", *options)
    assert done.code in {1, 2}
    assert done.out == ""
    assert message in done.err
    assert len(done.err.splitlines()) == 1
    assert "s3cr3t" not in done.err


def test_answers_are_not_delayed_until_the_client_acknowledges_their_headers() -> None:
    with listening("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP  # what asyncio looks at before it sets TCP_NODELAY


@pytest.mark.slow
def test_workers_count_requests_together_and_a_new_one_goes_on_counting(home: Path) -> None:
    with served(home, "--rate-limit", "4", "--url", "http://hub.example.org") as server:

        def allowed(requests: int) -> int:
            path = f"{server.url}/ada/moons/resolve/main/config.json"
            return sum(httpx.head(path, timeout=60).status_code != 429 for _ in range(requests))

        began = time.monotonic()
        statuses, before = allowed(15), server.workers()
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        wait_for(lambda: all(is_gone(worker) for worker in before), 60)
        statuses += allowed(15)
        filled = int((time.monotonic() - began) * 4 / 60) + 1
        assert 20 <= statuses <= 20 + filled
        refused = httpx.get(f"{server.url}/api/models")
        assert refused.status_code == 429
        assert refused.headers["ratelimit-policy"] == '"fixed window";"requests";q=20;w=300'


# Reads while writers wait, and requests while the database does not answer.


WRITERS = 60


def test_reads_are_answered_while_many_writers_wait(tmp_path: Path, each_database: str | None) -> None:
    with shared_hub(tmp_path, database_url=each_database) as shared:
        shared.create("bob/card")
        client = shared.http("bob")
        other = Database(each_database or tmp_path / "home" / "hub" / "hub.db")

        def read() -> float:
            begun = time.monotonic()
            for path in ("/api/models/bob/card", "/bob/card", "/api/whoami-v2", "/readyz"):
                assert client.get(path).status_code == 200
            return time.monotonic() - begun

        def write(number: int) -> int:
            url = f"{shared.url}/api/models/bob/card/branch/b{number}"
            return httpx.post(url, headers=client.headers, timeout=60).status_code

        read()  # the first one also compiles the page
        undisturbed = read()
        with ThreadPoolExecutor(WRITERS) as pool:
            with other.write():  # until its end, nobody else can write
                writes = [pool.submit(write, number) for number in range(WRITERS)]
                time.sleep(1)
                taken = read()
                assert not any(done.done() for done in writes)
            assert {done.result() for done in writes} == {200}
        other.close()
        # On a busy machine the same reads take longer without writers, too.
        assert taken < 3 + 10 * undisturbed
        assert len(shared.hub.refs.branches(shared.hub.repositories.get("model", "bob/card"))) == WRITERS + 1


def test_a_writer_waits_for_another_and_then_writes(tmp_path: Path, each_database: str | None) -> None:
    location = each_database or tmp_path / "hub.db"
    database, begun, released = Database(location, serving=True), threading.Event(), []

    def hold() -> None:
        with Database(location).write():
            begun.set()
            time.sleep(0.5)
            released.append(time.monotonic())

    holder = threading.Thread(target=hold)
    holder.start()
    begun.wait()
    with database.write():
        assert time.monotonic() >= released[0]
    holder.join()
    database.close()


@pytest.mark.postgres
def test_a_statement_that_takes_too_long_is_ended_in_servers_only(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "READ_SECONDS", 0.5)
    served, local = Database(postgres, serving=True), Database(postgres)
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="took too long"), served.read() as connection:
        connection.execute(text("SELECT pg_sleep(20)"))
    assert time.monotonic() - begun < 10
    with local.read() as connection:
        connection.execute(text("SELECT pg_sleep(0.8)"))
    with served.read() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    served.close()
    local.close()
