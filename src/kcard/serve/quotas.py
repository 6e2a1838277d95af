"""What the holders of keys have spent, in an SQLite file that all endpoints of a home share.

Each has the tokens of a day, and a bucket of requests as one number, the time at which it will be full (the generic
cell rate algorithm). What was counted outlives the process, however that ends.
"""

import contextlib
import math
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

__all__ = ["DAY", "WINDOW", "Quotas"]

DAY = 24 * 60 * 60  # seconds
WINDOW = 300  # seconds in which an empty bucket fills
PATIENCE = 5.0  # seconds to wait for another process that writes
SCHEMA = """
CREATE TABLE IF NOT EXISTS spent (
    holder TEXT PRIMARY KEY,
    day INTEGER NOT NULL DEFAULT 0,
    tokens INTEGER NOT NULL DEFAULT 0,
    full REAL NOT NULL DEFAULT 0
)"""


class Quotas:
    """Counts by holder. `path`: the file, made if it is missing. Thread-safe, across processes too.

    Raises sqlite3.Error where the file can't be read or written.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lock = clock, threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = NORMAL")  # a power failure may forget the last ones
        self._file.execute(SCHEMA)

    def tokens(self, holder: str) -> int:
        """What was spent today (UTC)."""
        with self._lock:
            query = "SELECT tokens FROM spent WHERE holder = ? AND day = ?"
            row = self._file.execute(query, (holder, self._today())).fetchone()
            return int(row[0]) if row else 0

    def spend(self, holder: str, tokens: int) -> None:
        """Count tokens of today."""
        with self._lock:
            self._file.execute(
                "INSERT INTO spent (holder, day, tokens) VALUES (:holder, :day, :tokens) ON CONFLICT DO UPDATE "
                "SET tokens = tokens * (day = :day) + :tokens, day = :day",
                {"holder": holder, "day": self._today(), "tokens": tokens},
            )

    def take(self, holder: str, rate: int) -> int:
        """Take a request of a bucket that fills at `rate` a minute and holds those of WINDOW seconds.

        Returns the seconds to wait where there is none, else 0.
        """
        with self._changing():
            now = self._clock()
            row = self._file.execute("SELECT full FROM spent WHERE holder = ?", (holder,)).fetchone()
            kept = row[0] if row else now
            begun = kept if now <= kept <= now + WINDOW else now  # later: the clock was set back
            full = begun + 60 / rate
            if full - now > WINDOW:
                return max(1, math.ceil(full - now - WINDOW))
            self._file.execute(
                "INSERT INTO spent (holder, full) VALUES (?, ?) ON CONFLICT DO UPDATE SET full = excluded.full",
                (holder, full),
            )
            return 0

    def until_tomorrow(self) -> int:
        """Seconds."""
        return DAY - int(self._clock()) % DAY

    def _today(self) -> int:
        return int(self._clock()) // DAY

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """What is read and written within it, no other process changes."""
        with self._lock:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._file.execute("ROLLBACK")
                raise
