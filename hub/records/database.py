"""Opens, migrates and locks the hub's database, whichever kind it is."""

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DatabaseError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from kcard.errors import DiskFull, HubError, Unavailable
from kcard.hub.records.engine import WAIT_SECONDS, engine, locate, shown, transaction_options
from kcard.hub.records.outage import Outage
from kcard.hub.records.postgresql import wait_for_writers
from kcard.hub.records.tables import HEAD

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["Database"]

LONGEST = 300
BUSY = "locked by another process: try again later"
CROWDED = "no free connection: try again later"
SLOW = "a statement took too long: try again later"
FULL = "the disk is full: free some space and try again; nothing was changed"
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
        self._url = locate(location)
        self.name = shown(self._url)
        self._readers = engine(self._url, write=False, serving=serving)
        self._writers = engine(self._url, write=True, serving=serving)
        self._outage = Outage(self.name)
        self._process, self._turn = os.getpid(), threading.Lock()
        weakref.finalize(self, _close, (self._readers, self._writers), self._process)
        if self.path is not None:
            _create_private(self.path)
        with self.read() as connection:
            revision = _revision(connection)
        if revision != HEAD:
            self._upgrade(revision)

    @property
    def path(self) -> Path | None:
        """The SQLite file; None for PostgreSQL."""
        return Path(self.name) if self._url.drivername == "sqlite" else None

    def close(self) -> None:
        """Close pooled connections; the next transaction opens a new one."""
        self._readers.dispose()
        self._writers.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read transaction, which sees one snapshot and never waits."""
        self._after_fork()
        with self._transaction(self._readers, write=False) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A write transaction, exclusive among writers; rolled back if the block raises."""
        self._after_fork()
        # Threads of this process wait here, without a connection.
        turn = self._turn
        if not turn.acquire(timeout=WAIT_SECONDS):
            raise Unavailable(f"hub database {self.name}: {BUSY}")
        try:
            with self._transaction(self._writers, write=True) as connection:
                yield connection
        finally:
            turn.release()

    def close_log(self) -> None:
        """Make a SQLite database a single file, without a write-ahead log."""
        with closing(sqlite3.connect(self.name)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")

    @contextmanager
    def _transaction(self, engine: Engine, write: bool) -> Iterator[Connection]:
        self._outage.check()
        try:
            options = transaction_options(engine, write)
            with engine.connect().execution_options(**options) as connection, connection.begin():
                self._outage.ended()
                if write and self.path is None:
                    wait_for_writers(connection)
                yield connection
        except IntegrityError:
            raise
        except (DatabaseError, InterfaceError, PoolTimeout) as error:
            raise self._explained(error) from error

    def _explained(self, error: DatabaseError | InterfaceError | PoolTimeout) -> HubError:
        if isinstance(error, PoolTimeout):
            return Unavailable(f"hub database {self.name}: {CROWDED}")
        self._outage.noticed(error.orig)
        reason = " ".join(str(error.orig).split())
        if self._url.password:
            reason = reason.replace(self._url.password, "***")
        if "locked" in reason or "lock timeout" in reason:
            return Unavailable(f"hub database {self.name}: {BUSY}")
        if "statement timeout" in reason:
            return Unavailable(f"hub database {self.name}: {SLOW}")
        if "disk is full" in reason or "No space left" in reason:
            return DiskFull(f"hub database {self.name}: {FULL}")
        if self.path is None and (
            isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated
        ):
            return Unavailable(f"hub database {self.name} is unavailable: {reason[:LONGEST]}; {REMEDY}")
        return HubError(f"hub database {self.name}: {reason[:LONGEST]}")

    def _after_fork(self) -> None:
        """In a child process, drop the parent's connections and lock."""
        if self._process != os.getpid():
            self._readers.dispose(close=False)
            self._writers.dispose(close=False)
            self._process, self._turn = os.getpid(), threading.Lock()

    def _upgrade(self, revision: str | None) -> None:
        # Alembic is slow to import, so only do so if needed.
        from alembic import command
        from alembic.script import ScriptDirectory

        config = _alembic()
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if revision is not None and revision < min(known):
            raise HubError(
                f"hub database {self.name} has schema {revision} of an earlier kcard, which this version can't read: "
                "set KCARD_HOME to another folder, and publish the cards again"
            )
        if revision is not None and revision not in known:
            raise HubError(
                f"hub database {self.name} has schema {revision} of a newer kcard (this version supports up to {HEAD}):"
                " upgrade kcard, or set KCARD_HOME to another folder"
            )
        if self.path is not None:
            self._write_ahead()
        unlimited = engine(self._url, write=True)
        try:
            # A concurrent upgrade waits here and finds nothing to do.
            with self._transaction(unlimited, write=True) as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        finally:
            unlimited.dispose()

    def _write_ahead(self) -> None:
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


def _close(engines: tuple[Engine, ...], process: int) -> None:
    if process == os.getpid():  # in a child, closing would break the parent's connections
        for engine in engines:
            engine.dispose()


def _create_private(path: Path) -> None:
    """Create the file for its owner only, as SQLite then does with the files beside it."""
    with suppress(OSError):  # it exists, or SQLite reports why it can't be
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def _alembic() -> "Config":
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parents[1] / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
