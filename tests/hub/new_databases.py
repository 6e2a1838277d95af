"""New SQLite databases as copies of the first one that the migrations made in this process.

A new hub takes 0.2 s of processor time for its migrations, and most tests open one. They end processes, never the
machine, so that no transaction waits for the disk.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import wraps
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from kcard.hub.db.session import Database


@pytest.fixture(scope="session", autouse=True)
def copied_databases() -> Iterator[None]:
    """Only databases that are empty are copied; those of other processes are made by the migrations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "migrate", _copying(Database.migrate))
        event.listen(Engine, "connect", _unsynced)
        yield
        event.remove(Engine, "connect", _unsynced)


def _unsynced(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def _copying(upgrade: Callable[..., None]) -> Callable[..., None]:
    copies: list[bytes] = []
    turn, process = threading.Lock(), os.getpid()

    @wraps(upgrade)
    def copied(database: Database, revision: str | None) -> None:
        path = database.path
        with turn:
            # A forked process may open a new database at the same time as others, which read it while it is copied.
            is_forked = os.getpid() != process
            if is_forked or revision is not None or path is None or not path.exists() or path.stat().st_size:
                upgrade(database, revision)
            elif copies:
                path.write_bytes(copies[0])
            else:
                upgrade(database, revision)
                copies.append(_content(path))

    return copied


def _content(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        return connection.serialize()
