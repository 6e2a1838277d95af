"""SQLAlchemy engines for PostgreSQL."""

import time
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from kcard.errors import MissingExtra, Unavailable

if TYPE_CHECKING:
    from kcard.hub.records.silence import ImpatientConnection

__all__ = ["WAIT_SECONDS", "postgresql_engine", "wait_for_writers"]

WRITERS_LOCK = int.from_bytes(b"kcard")
WAIT_SECONDS = 30  # for other writers
STEP_SECONDS = 1
CONNECT_SECONDS = 3  # of a server; others wait longer
# The longest statement of a server. Other programs, such as a backup, have no limit.
READ_SECONDS, WRITE_SECONDS = 5, 20
# A process that hangs during a write must not block the others forever.
SESSION = {
    "TimeZone": "UTC",
    "lock_timeout": WAIT_SECONDS * 1000,
    "idle_in_transaction_session_timeout": 300_000,
}
NETWORK = {
    "keepalives_idle": 30,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}


def postgresql_engine(url: URL, *, write: bool, serving: bool) -> Engine:
    """An engine for writers or readers. `serving`: statements that take seconds fail. Raises MissingExtra."""
    seconds = (WRITE_SECONDS if write else READ_SECONDS) if serving else None
    arguments = NETWORK | {"connect_timeout": CONNECT_SECONDS if serving else 10, "application_name": "kcard"}
    arguments |= {**url.query, "options": _options(url, seconds)}
    # Threads take turns to write, so that one connection is enough.
    pool = {"pool_size": 1, "max_overflow": 0} if write else {"pool_size": 8, "max_overflow": 8}
    try:
        engine = create_engine(
            url.set(query={}),
            connect_args=arguments,
            hide_parameters=True,
            pool_pre_ping=True,  # the server may have restarted
            pool_timeout=seconds or WAIT_SECONDS,
            **pool,
        )
    except ModuleNotFoundError:
        raise MissingExtra("PostgreSQL needs psycopg: pip install 'kcard[postgres]'") from None
    if seconds is not None:
        _limit(engine, seconds)
    return engine


def _options(url: URL, seconds: int | None) -> str:
    given = url.query.get("options", "")
    session = SESSION if seconds is None else SESSION | {"statement_timeout": seconds * 1000}
    options = [given] if isinstance(given, str) else [*given]
    return " ".join([*options, *(f"-c {name}={value}" for name, value in session.items())])


def _limit(engine: Engine, seconds: float) -> None:
    """Close connections to a silent server, at the pool's ping sooner than in a transaction."""
    from kcard.hub.records.silence import PING_SECONDS, ImpatientConnection

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: object, _record: object, given: Any, named: Any) -> "ImpatientConnection":
        return ImpatientConnection.connect(*given, **named)

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        _driver(connection.connection).patience = seconds + STEP_SECONDS

    @event.listens_for(engine, "checkin")
    def _returned(connection: Any, _record: object) -> None:
        if connection is not None:
            connection.patience = PING_SECONDS


def _driver(connection: Any) -> "ImpatientConnection":
    driver: ImpatientConnection = connection.driver_connection
    return driver


def wait_for_writers(connection: Connection) -> None:
    """Take the lock of writers, at the begin of a transaction. Raises Unavailable after WAIT_SECONDS.

    It waits in steps: a server that is silent for longer than a step is frozen.
    """
    if connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({WRITERS_LOCK})").scalar():
        return
    deadline = time.monotonic() + WAIT_SECONDS
    while not _locked_soon(connection):
        if time.monotonic() > deadline:
            raise Unavailable(
                f"the database was locked by another process for {WAIT_SECONDS} s: try again later"
            )


def _locked_soon(connection: Connection) -> bool:
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {STEP_SECONDS * 1000}")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS_LOCK})")
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {WAIT_SECONDS * 1000}")
    except OperationalError as error:
        if error.connection_invalidated or "lock timeout" not in str(error.orig):
            raise
        return False
    return True
