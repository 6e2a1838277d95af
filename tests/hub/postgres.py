"""A throw-away PostgreSQL cluster, one for each process that runs tests, and an empty database for each test.

Skipped where its programs are not installed. PostgreSQL refuses to run as root: there it runs as user postgres.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

# Nothing here needs to outlive the machine; what was committed does outlive the server.
OPTIONS = ("-F", "-c", "full_page_writes=off", "-c", "shared_buffers=32MB")
NEW = ("-U", "postgres", "-E", "UTF8", "--no-sync", "-A", "trust")
LANGUAGE = "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C.UTF-8'"


@dataclass(frozen=True)
class Cluster:
    """A running server on this machine, whose superuser needs no password."""

    programs: Path
    data: Path
    port: int

    @property
    def url(self) -> str:
        """Of the database that is always there."""
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create(self, like: str | None = None) -> str:
        """A new database; its URL. It is empty, and orders texts by a language, as most that are made by hand do.

        `like`: the URL of one that it is a copy of instead, to which nobody may be connected.
        """
        name = f"kcard_{uuid.uuid4().hex[:12]}"
        how = LANGUAGE if like is None else f"TEMPLATE {like.rpartition('/')[2]}"
        self._ask(f"CREATE DATABASE {name} {how}")
        return self.url_of(name)

    def drop(self, url: str) -> None:
        self._ask(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        port = ("-p", str(self.port), "-c", "listen_addresses=127.0.0.1", "-k", str(self.data))
        options = " ".join((*OPTIONS, *port))
        log = self.data / "server.log"
        self._control("start", "-w", "-t", "60", "-l", str(log), "-o", options)

    def stop(self) -> None:
        """Stop the server as a crash does."""
        self._control("stop", "-m", "immediate")

    def _control(self, *arguments: str) -> None:
        _as_postgres([str(self.programs / "pg_ctl"), "-D", str(self.data), *arguments])

    def _ask(self, query: str) -> None:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(query.encode())


@contextmanager
def running() -> Iterator[Cluster]:
    """A new cluster, gone when its block ends. LookupError where there is no PostgreSQL."""
    programs = _programs()
    if programs is None:
        raise LookupError("PostgreSQL is not installed")
    folder = Path(tempfile.mkdtemp(prefix="kcard-postgres-"))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")
        data = folder / "data"
        _as_postgres([str(programs / "initdb"), "-D", str(data), *NEW])
        cluster = Cluster(programs, data, _free_port())
        cluster.start()
        try:
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster of this test process."""
    pytest.importorskip("psycopg", reason="psycopg is not installed: make dev-all")
    try:
        with running() as server:
            yield server
    except LookupError as error:
        pytest.skip(str(error))


@pytest.fixture
def postgres(cluster: Cluster) -> Iterator[str]:
    """The URL of an empty PostgreSQL database of this test's own."""
    url = cluster.create()
    yield url
    cluster.drop(url)


@pytest.fixture(scope="session")
def new_hub(cluster: Cluster) -> str:
    """The URL of a database with the tables of a new hub, which tests copy: its migrations take most of a second."""
    from kcard.hub.db.session import Database

    url = cluster.create()
    Database(url).close()
    return url


@pytest.fixture
def postgres_hub(cluster: Cluster, new_hub: str) -> Iterator[str]:
    """The URL of the PostgreSQL database of a new hub, of this test's own."""
    url = cluster.create(new_hub)
    yield url
    cluster.drop(url)


# PostgreSQL's turn is a further case where others send the same queries and locks to it by default.
SQLITE_FIRST = ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgres, pytest.mark.slow])]
BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
on_both = pytest.mark.parametrize("any_database", BOTH, indirect=True)


@pytest.fixture(params=SQLITE_FIRST)
def any_database(request: pytest.FixtureRequest) -> str | None:
    """Both homes of a new hub in turn: None for the SQLite file in its folder, the URL of a PostgreSQL database."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_hub"))


@pytest.fixture(params=BOTH)
def each_database(request: pytest.FixtureRequest) -> str | None:
    """As any_database; both by default."""
    return None if request.param == "sqlite" else str(request.getfixturevalue("postgres_hub"))


def _programs() -> Path | None:
    if program := shutil.which("initdb"):
        return Path(program).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    return installed[-1] if installed else None


def _as_postgres(command: list[str]) -> None:
    user, groups = ("postgres", ()) if os.getuid() == 0 else (None, None)
    done = subprocess.run(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        user=user,
        group=user,
        extra_groups=groups,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {done.stdout.decode()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
