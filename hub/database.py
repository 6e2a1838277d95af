"""The hub's database: opened, migrated and locked here; nothing else knows which one it is."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, inspect, text
from sqlalchemy.exc import DatabaseError, IntegrityError

from kcard.errors import HubError
from kcard.faults import reach
from kcard.hub.tables import HEAD

if TYPE_CHECKING:
    from alembic.config import Config

__all__ = ["Database"]

WAIT_SECONDS = 30


class Database:
    """A SQLite file whose schema is current. Two processes may open a fresh one at the same moment.

    No connection outlives its transaction, so a Database may be used from any thread and after a fork.
    """

    def __init__(self, path: Path) -> None:
        """Open the database, creating or migrating it; HubError where that can't be done."""
        self.path = path
        self._engine = _engine(path)
        with self.read() as connection:
            revision = _revision(connection)
        if revision != HEAD:
            self._upgrade(revision)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database and waits for nobody."""
        with self._transaction(write=False) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that no other writer shares; committed when the block ends, undone when it raises."""
        with self._transaction(write=True) as connection:
            yield connection

    def copy(self, target: Path) -> None:
        """Write the database, as it is now, into a new file of its own; others may go on writing."""
        try:
            with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(target)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")  # no log beside it: one file
        except sqlite3.Error as error:
            raise HubError(f"hub database {self.path} can't be copied: {error}") from error

    @contextmanager
    def _transaction(self, write: bool) -> Iterator[Connection]:
        try:
            with (
                self._engine.connect().execution_options(kcard_write=write) as connection,
                connection.begin(),
            ):
                if write:
                    reach("transaction.begun")
                yield connection
                if write:
                    reach("transaction.written")
            if write:
                reach("transaction.committed")
        except IntegrityError:
            raise
        except DatabaseError as error:
            raise HubError(f"hub database {self.path}: {_reason(error)}") from error

    def _upgrade(self, revision: str | None) -> None:
        # Alembic takes longer to import than most commands to run, so only a database that needs it pays.
        from alembic import command
        from alembic.script import ScriptDirectory

        config = _alembic()
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if revision is not None and revision not in known:
            raise HubError(
                f"hub database {self.path} has schema {revision}, made by a newer kcard (this one knows "
                f"up to {HEAD}): upgrade kcard, or set KCARD_HOME to another folder"
            )
        self._write_ahead()
        reach("migrate.logged")
        with self.write() as connection:  # who comes second waits here and finds nothing left to do
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def _write_ahead(self) -> None:
        """Switch to the write-ahead log, which the file remembers; SQLite itself won't wait to do this."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise HubError(f"hub database {self.path}: {error}") from error
                time.sleep(0.02)
            finally:
                connection.close()


def _engine(path: Path) -> Engine:
    engine = create_engine(URL.create("sqlite", database=str(path)), poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: object) -> None:
        # sqlite3 would begin late and leave CREATE TABLE outside; here every transaction begins explicitly.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {WAIT_SECONDS * 1000}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # A writer takes the lock at once: a reader that turns writer may be refused without any waiting.
        write = connection.get_execution_options().get("kcard_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return revision


def _alembic() -> "Config":
    from alembic.config import Config

    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _reason(error: DatabaseError) -> str:
    reason = str(error.orig)
    if "locked" in reason:
        return f"another process has been writing for {WAIT_SECONDS} s: try again when it is done"
    if "full" in reason:
        return "the disk is full: free some space and try again; nothing was changed"
    return reason
