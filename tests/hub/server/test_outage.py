"""Reads while writers wait, and requests while the database does not answer."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from kcard.errors import Unavailable
from kcard.hub.db import session
from kcard.hub.db.session import Database
from tests.hub.postgres import Cluster, running
from tests.hub.shared_hub import Shared, shared_hub

WRITERS = 60


@contextmanager
def written_elsewhere(location: Path | str) -> Iterator[None]:
    """Another process's write: until the end of the block, no other can write."""
    database = Database(location)
    with database.write():
        yield
    database.close()


def test_reads_are_answered_while_many_writers_wait(tmp_path: Path, any_database: str | None) -> None:
    with shared_hub(tmp_path, database_url=any_database) as shared:
        shared.create("bob/card")
        client = shared.http("bob")
        location = any_database or tmp_path / "home" / "hub" / "hub.db"

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
            with written_elsewhere(location):
                writes = [pool.submit(write, number) for number in range(WRITERS)]
                time.sleep(3)
                taken = read()
                assert not any(done.done() for done in writes)
            assert {done.result() for done in writes} == {200}
        # On a busy machine the same reads take longer without writers, too.
        assert taken < 3 + 10 * undisturbed
        assert len(shared.hub.refs.branches(shared.hub.repositories.get("model", "bob/card"))) == WRITERS + 1


@pytest.fixture
def frozen_later(tmp_path: Path) -> Iterator[tuple[Shared, Cluster]]:
    try:
        with running() as cluster, shared_hub(tmp_path, database_url=cluster.create()) as shared:
            yield shared, cluster
            shared.hub.database.close()
    except LookupError as error:
        pytest.skip(str(error))


@contextmanager
def frozen(cluster: Cluster) -> Iterator[None]:
    """All processes of the server stopped, as by a hanging disk; its kernel still accepts connections and data."""
    first = int((cluster.data / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    processes = [first, *map(int, children)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest.mark.slow
@pytest.mark.postgres
def test_a_frozen_database_is_a_503_within_seconds(frozen_later: tuple[Shared, Cluster]) -> None:
    shared, cluster = frozen_later
    shared.create("bob/card")
    client = shared.http("bob")
    with ThreadPoolExecutor(40) as pool:  # all connections of the pool are used
        assert {*pool.map(lambda _: client.get("/api/models/bob/card").status_code, range(80))} == {200}
        with frozen(cluster):
            begun = time.monotonic()
            reads = [pool.submit(client.get, "/api/models/bob/card") for _ in range(30)]
            writes = [pool.submit(client.post, f"/api/models/bob/card/branch/b{n}") for n in range(10)]
            answers = [done.result() for done in reads + writes]
            assert time.monotonic() - begun < 12
            assert {answer.status_code for answer in answers} == {503}
            assert all(int(answer.headers["retry-after"]) > 0 for answer in answers)
            begun = time.monotonic()
            assert client.get("/api/models").status_code == 503
            assert client.get("/healthz").status_code == 200
            assert time.monotonic() - begun < 8
        deadline = time.monotonic() + 30
        while client.get("/api/models/bob/card").status_code != 200:
            assert time.monotonic() < deadline, "it did not recover"
            time.sleep(0.2)
    assert client.post("/api/models/bob/card/branch/after").status_code == 200


def test_a_writer_waits_for_another_and_then_writes(tmp_path: Path, any_database: str | None) -> None:
    """For longer than one step of its wait."""
    location = any_database or tmp_path / "hub.db"
    database, begun, released = Database(location, serving=True), threading.Event(), []

    def hold() -> None:
        with Database(location).write():
            begun.set()
            time.sleep(2.5)
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
    monkeypatch.setattr(session, "READ_SECONDS", 1)
    served, local = Database(postgres, serving=True), Database(postgres)
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="took too long"), served.read() as connection:
        connection.execute(text("SELECT pg_sleep(20)"))
    assert time.monotonic() - begun < 10
    with local.read() as connection:
        connection.execute(text("SELECT pg_sleep(1.5)"))
    with served.read() as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    served.close()
    local.close()
