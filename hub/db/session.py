"""Connections to a hub's database, SQLite or PostgreSQL."""

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    CursorResult,
    Engine,
    Executable,
    NullPool,
    QueuePool,
    create_engine,
    event,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from kcard.errors import DiskFull, HubError, MissingExtra, Unavailable, UsageError
from kcard.hub.db.models import HEAD

# SQLAlchemy engines for SQLite and PostgreSQL: a reader sees a snapshot and never waits; there is one writer.

WRITERS_LOCK = int.from_bytes(b"kcard")
WAIT_SECONDS = 30  # for other writers
CONNECT_SECONDS = 3  # for servers; other programs wait longer
# Limits for one statement of a server. Other programs, such as a backup, have none.
READ_SECONDS, WRITE_SECONDS = 5, 20
# A process that hangs during a write must not block the others forever.
SESSION = {
    "TimeZone": "UTC",
    "lock_timeout": WAIT_SECONDS * 1000,
    "idle_in_transaction_session_timeout": 300_000,
}
# A server that can't be reached any more is noticed after ten seconds.
NETWORK = {
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}


def make_postgresql_engine(url: URL, *, write: bool, serving: bool) -> Engine:
    """Make an engine for writers or readers. `serving`: with a time limit for statements. Raises MissingExtra."""
    session: dict[str, Any] = dict(SESSION)
    connect_seconds, pool_seconds = 10, WAIT_SECONDS
    # Threads take turns to write, so that one connection is enough.
    connections, more_connections, statement_seconds = 8, 8, READ_SECONDS
    if write:
        connections, more_connections, statement_seconds = 1, 0, WRITE_SECONDS
    if serving:
        connect_seconds, pool_seconds = CONNECT_SECONDS, statement_seconds
        session["statement_timeout"] = statement_seconds * 1000
    options = [*url.normalized_query.get("options", ())]
    options += [f"-c {name}={value}" for name, value in session.items()]
    arguments = {
        **NETWORK,
        "connect_timeout": connect_seconds,
        "application_name": "kcard",
        **url.query,
        "options": " ".join(options),
    }
    try:
        return create_engine(
            url.set(query={}),
            connect_args=arguments,
            hide_parameters=True,
            pool_pre_ping=True,  # the server may have restarted
            pool_timeout=pool_seconds,
            pool_size=connections,
            max_overflow=more_connections,
        )
    except ModuleNotFoundError:
        raise MissingExtra("PostgreSQL needs psycopg: pip install 'kcard[postgres]'") from None


ACCEPTED_URLS = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE or sqlite:///PATH"
# Readers of SQLite wait only while another process creates the database or recovers it from a crash.
READER_WAIT_SECONDS, SERVED_READER_WAIT_SECONDS = 10, 2


def parse_location(location: Path | str) -> URL:
    """Return the URL of a database; a Path is a SQLite file. Raises UsageError for an invalid URL."""
    if isinstance(location, Path):
        return URL.create("sqlite", database=str(location))
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        raise UsageError(f"invalid database URL: use {ACCEPTED_URLS}") from None
    if url.drivername == "sqlite" and url.database not in {None, "", ":memory:"}:
        return URL.create("sqlite", database=str(Path(url.database or "").expanduser().absolute()))
    if url.drivername in {"postgres", "postgresql", "postgresql+psycopg"}:
        return url.set(drivername="postgresql+psycopg")
    raise UsageError(f"unsupported database {database_name(url)}: use {ACCEPTED_URLS}")


def database_name(url: URL) -> str:
    """Return the name of a database in messages: its file, or host and name, without credentials."""
    if url.drivername == "sqlite":
        return str(url.database)
    bare = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database)
    return bare.render_as_string()


def make_engine(url: URL, *, write: bool, serving: bool = False) -> Engine:
    """Make an engine for a URL from `parse_location`, for writers or for readers.

    `serving`: for servers, which keep connections open and wait for seconds only. Raises MissingExtra without the
    PostgreSQL driver.
    """
    if url.drivername == "sqlite":
        return make_sqlite_engine(url, write=write, serving=serving)
    return make_postgresql_engine(url, write=write, serving=serving)


def make_sqlite_engine(url: URL, *, write: bool, serving: bool) -> Engine:
    pool: dict[str, Any] = {"poolclass": NullPool}
    connections, wait_seconds, begin_statement = 8, READER_WAIT_SECONDS, "BEGIN"
    if serving:
        wait_seconds = SERVED_READER_WAIT_SECONDS
    if write:  # writers lock at once: upgrading a read transaction may fail without waiting
        connections, wait_seconds, begin_statement = 1, WAIT_SECONDS, "BEGIN IMMEDIATE"
    if serving:
        pool = {"poolclass": QueuePool, "pool_size": connections, "max_overflow": -1}
    engine = create_engine(url, hide_parameters=True, **pool)

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: object) -> None:
        # By default, sqlite3 begins late and leaves CREATE TABLE outside; here transactions begin explicitly.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {wait_seconds * 1000}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(begin_statement)

    return engine


MAX_REASON_CHARACTERS = 300  # of a driver's error
BUSY = "locked by another process: try again later"
NO_CONNECTION_MESSAGE = "no free connection: try again later"
SLOW = "a statement took too long: try again later"
DISK_FULL_MESSAGE = "the disk is full: free some space and try again; nothing was changed"
REMEDY = "start it, or correct KCARD_DATABASE_URL"


class Database:
    """A SQLite file or a PostgreSQL database with the current schema.

    Several processes may open a new one concurrently. It is thread-safe and fork-safe. Readers and writers have
    connections of their own. `serving` is for servers: connections to SQLite stay open, as those to PostgreSQL always
    do, and a database that does not answer is Unavailable within seconds.
    """

    def __init__(self, location: Path | str, *, serving: bool = False) -> None:
        """Open the database, creating or migrating it.

        `location` is the path of a SQLite file, or a URL. Raises UsageError for an invalid URL, MissingExtra for a
        missing driver, HubError if the database can't be opened.
        """
        self._url = parse_location(location)
        self.name = database_name(self._url)
        self._readers = make_engine(self._url, write=False, serving=serving)
        self._writers = make_engine(self._url, write=True, serving=serving)
        self._process, self._turn = os.getpid(), threading.Lock()
        weakref.finalize(self, _close_engines, (self._readers, self._writers), self._process)
        if self.path is not None:
            # Only its owner may read a new file; SQLite then gives its other files the same mode.
            with suppress(OSError):  # it exists, or SQLite reports why it can't be
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        revision: str | None = None
        with self._transaction(self._readers, write=False) as connection:
            if inspect(connection).has_table("alembic_version"):
                revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
        if revision != HEAD:
            self.migrate(revision)

    @property
    def path(self) -> Path | None:
        """The SQLite file; None for PostgreSQL."""
        return Path(self.name) if self._url.drivername == "sqlite" else None

    def close(self) -> None:
        """Close pooled connections; the next transaction opens a new one."""
        self._readers.dispose()
        self._writers.dispose()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Open a read transaction, which sees one snapshot and never waits."""
        self._after_fork()
        with (
            self._transaction(self._readers, write=False) as connection,
            _open_session(connection) as session,
        ):
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Open a write transaction, exclusive among writers; rolled back if the block raises."""
        self._after_fork()
        # Threads of this process wait here, without a connection.
        turn = self._turn
        if not turn.acquire(timeout=WAIT_SECONDS):
            raise Unavailable(f"hub database {self.name}: {BUSY}")
        try:
            with (
                self._transaction(self._writers, write=True) as connection,
                _open_session(connection) as session,
            ):
                yield session
                session.flush()
        finally:
            turn.release()

    @contextmanager
    def _transaction(self, engine: Engine, write: bool) -> Iterator[Connection]:
        options: dict[str, Any] = {}
        if self.path is None:
            # A writer waits for the lock in its first statement, and must then see the previous writer's changes.
            level = "READ COMMITTED" if write else "REPEATABLE READ"
            options = {"isolation_level": level, "postgresql_readonly": not write}
        try:
            with engine.connect().execution_options(**options) as connection, connection.begin():
                if write and self.path is None:
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS_LOCK})")
                yield connection
        except IntegrityError:
            raise
        except (DatabaseError, InterfaceError, PoolTimeout) as error:
            raise self._translate(error) from error

    def _translate(self, error: DatabaseError | InterfaceError | PoolTimeout) -> HubError:
        if isinstance(error, PoolTimeout):
            return Unavailable(f"hub database {self.name}: {NO_CONNECTION_MESSAGE}")
        reason = " ".join(str(error.orig).split())
        if self._url.password:
            reason = reason.replace(self._url.password, "***")
        if "locked" in reason or "lock timeout" in reason:
            return Unavailable(f"hub database {self.name}: {BUSY}")
        if "statement timeout" in reason:
            return Unavailable(f"hub database {self.name}: {SLOW}")
        if "disk is full" in reason or "No space left" in reason:
            return DiskFull(f"hub database {self.name}: {DISK_FULL_MESSAGE}")
        if self.path is None and (
            isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated
        ):
            return Unavailable(
                f"hub database {self.name} is unavailable: {reason[:MAX_REASON_CHARACTERS]}; {REMEDY}"
            )
        return HubError(f"hub database {self.name}: {reason[:MAX_REASON_CHARACTERS]}")

    def _after_fork(self) -> None:
        """Drop the parent's connections and lock in a child process."""
        if self._process != os.getpid():
            self._readers.dispose(close=False)
            self._writers.dispose(close=False)
            self._process, self._turn = os.getpid(), threading.Lock()

    def migrate(self, revision: str | None) -> None:
        """Migrate the database from its revision to HEAD; None: a new one. Raises HubError for an unknown revision."""
        # Alembic is slow to import, so only do so if needed.
        from alembic import command
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        config = Config()
        folder = str(Path(__file__).parents[1] / "migrations")
        config.set_main_option("script_location", folder.replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if revision is not None and revision < min(revisions):
            raise HubError(
                f"hub database {self.name} has schema {revision} of an earlier kcard, which this version can't read: "
                "set KCARD_HOME to another folder, and publish the cards again"
            )
        if revision is not None and revision not in revisions:
            raise HubError(
                f"hub database {self.name} has schema {revision} of a newer kcard (this version supports up to {HEAD}):"
                " upgrade kcard, or set KCARD_HOME to another folder"
            )
        if self.path is not None:
            self._use_write_ahead_log()
        unlimited = make_engine(self._url, write=True)
        try:
            # A concurrent upgrade waits here and finds nothing to do.
            with self._transaction(unlimited, write=True) as connection:
                config.attributes["connection"] = connection
                if revision is None and not inspect(connection).has_table("alembic_version"):
                    command.upgrade(config, "base+1")  # the tables as they are now
                    command.stamp(config, "head")
                command.upgrade(config, "head")
        finally:
            unlimited.dispose()

    def _use_write_ahead_log(self) -> None:
        """Switch the file to write-ahead logging, with retries: SQLite does not wait for the lock."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            connection = self._writers.raw_connection()
            try:
                connection.cursor().execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise HubError(f"hub database {self.name}: {error}") from error
                time.sleep(0.02)
            finally:
                connection.close()


def _open_session(connection: Connection) -> Session:
    """Return a session inside the connection's transaction; its rows may be read after it."""
    return Session(connection, expire_on_commit=False, join_transaction_mode="rollback_only")


def count_changed(session: Session, statement: Executable) -> int:
    """Execute an update or a deletion; return the number of rows that it matched."""
    result = session.execute(statement, execution_options={"synchronize_session": False})
    assert isinstance(result, CursorResult)
    return result.rowcount


def _close_engines(engines: tuple[Engine, ...], process: int) -> None:
    if process == os.getpid():  # in a child, closing would break the parent's connections
        for engine in engines:
            engine.dispose()
