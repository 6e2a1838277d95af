"""SQLAlchemy engines for SQLite and PostgreSQL: a reader sees a snapshot and never waits; there is one writer."""

from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from kcard.errors import UsageError
from kcard.hub.records.postgresql import WAIT_SECONDS, postgresql_engine

__all__ = ["WAIT_SECONDS", "engine", "locate", "shown", "transaction_options"]

ACCEPTED = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE or sqlite:///PATH"
# Readers of SQLite wait only while another process creates the database or recovers it from a crash.
READER_WAITS, SERVED_READER_WAITS = 10, 2


def locate(location: Path | str) -> URL:
    """The URL of a database; a Path is a SQLite file. Raises UsageError, without passwords, for an invalid URL."""
    if isinstance(location, Path):
        return URL.create("sqlite", database=str(location))
    try:
        url = make_url(location)
    except (ArgumentError, ValueError):
        raise UsageError(f"invalid database URL: use {ACCEPTED}") from None
    if url.drivername == "sqlite" and url.database not in {None, "", ":memory:"}:
        return URL.create("sqlite", database=str(Path(url.database or "").expanduser().absolute()))
    if url.drivername in {"postgres", "postgresql", "postgresql+psycopg"}:
        return url.set(drivername="postgresql+psycopg")
    raise UsageError(f"unsupported database {shown(url)}: use {ACCEPTED}")


def shown(url: URL) -> str:
    """A database in messages: its file, or host and name, without credentials."""
    if url.drivername == "sqlite":
        return str(url.database)
    bare = URL.create(url.get_backend_name(), host=url.host, port=url.port, database=url.database)
    return bare.render_as_string()


def engine(url: URL, *, write: bool, serving: bool = False) -> Engine:
    """An engine for a URL from `locate`, for writers or for readers.

    `serving`: for servers, which keep connections open and wait for seconds only. Raises MissingExtra without the
    PostgreSQL driver.
    """
    make = _sqlite if url.drivername == "sqlite" else postgresql_engine
    return make(url, write=write, serving=serving)


def transaction_options(engine: Engine, write: bool) -> dict[str, Any]:
    """Execution options of a connection for one transaction."""
    if engine.dialect.name == "sqlite":
        return {}
    # A writer waits for the lock in its first statement, and must then see the previous writer's changes.
    level = "READ COMMITTED" if write else "REPEATABLE READ"
    return {"isolation_level": level, "postgresql_readonly": not write}


def _sqlite(url: URL, *, write: bool, serving: bool) -> Engine:
    pool: dict[str, Any] = {"poolclass": NullPool}
    if serving:
        pool = {"poolclass": QueuePool, "pool_size": 1 if write else 8, "max_overflow": -1}
    engine = create_engine(url, hide_parameters=True, **pool)
    waits = WAIT_SECONDS if write else SERVED_READER_WAITS if serving else READER_WAITS

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: object) -> None:
        # By default, sqlite3 begins late and leaves CREATE TABLE outside; here transactions begin explicitly.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {waits * 1000}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # Writers lock at once: upgrading a read transaction may fail without waiting.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine
