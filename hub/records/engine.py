"""SQLAlchemy engines for SQLite and PostgreSQL: a reader sees a snapshot and never waits; there is one writer."""

from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from kcard.errors import MissingExtra, UsageError

__all__ = ["WAIT_SECONDS", "WRITE", "engine", "locate", "shown", "transaction_options"]

WAIT_SECONDS = 30
WRITE = "kcard_write"
ACCEPTED = "postgresql://USER:PASSWORD@HOST:PORT/DATABASE or sqlite:///PATH"
WRITERS_LOCK = int.from_bytes(b"kcard")
# A process that hangs during a write must not block the others forever.
SESSION = {
    "TimeZone": "UTC",
    "lock_timeout": WAIT_SECONDS * 1000,
    "idle_in_transaction_session_timeout": 300_000,
}


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


def engine(url: URL, pooled: bool) -> Engine:
    """An engine for a URL from `locate`. Raises MissingExtra without the PostgreSQL driver."""
    return _sqlite(url, pooled) if url.drivername == "sqlite" else _postgresql(url)


def transaction_options(engine: Engine, write: bool) -> dict[str, Any]:
    """Execution options of a connection for one transaction."""
    if engine.dialect.name == "sqlite":
        return {WRITE: write}
    # A writer waits for the lock in its first statement, and must then see the previous writer's changes.
    level = "READ COMMITTED" if write else "REPEATABLE READ"
    return {WRITE: write, "isolation_level": level, "postgresql_readonly": not write}


def _sqlite(url: URL, pooled: bool) -> Engine:
    pool: dict[str, Any] = {"poolclass": NullPool}
    if pooled:
        pool = {"poolclass": QueuePool, "pool_size": 8, "max_overflow": -1}
    engine = create_engine(url, hide_parameters=True, **pool)

    @event.listens_for(engine, "connect")
    def _connected(connection: Any, _record: object) -> None:
        # By default, sqlite3 begins late and leaves CREATE TABLE outside; here transactions begin explicitly.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {WAIT_SECONDS * 1000}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        # Writers lock at once: upgrading a read transaction may fail without waiting.
        write = connection.get_execution_options().get(WRITE)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _postgresql(url: URL) -> Engine:
    given = url.query.get("options", "")
    options = [given] if isinstance(given, str) else [*given]
    options += [f"-c {name}={value}" for name, value in SESSION.items()]
    arguments = {
        "connect_timeout": 10,
        "application_name": "kcard",
        **url.query,
        "options": " ".join(options),
    }
    try:
        engine = create_engine(
            url.set(query={}),
            connect_args=arguments,
            hide_parameters=True,
            pool_pre_ping=True,  # the server may have restarted
            pool_size=8,
            max_overflow=8,
            pool_timeout=WAIT_SECONDS,
        )
    except ModuleNotFoundError:
        raise MissingExtra("PostgreSQL needs psycopg: pip install 'kcard[postgres]'") from None

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        if connection.get_execution_options().get(WRITE):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS_LOCK})")

    return engine
