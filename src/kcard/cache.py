"""What was computed once and need not be again: embeddings and scores by content hash, in memory and on disk.

A cache may lose what it holds, never change it: an entry carries a checksum, and one that can't be read or written
(damaged, full, read-only, in use) counts as not there. It knows keys and bytes; what they mean, its users know.
"""

import contextlib
import functools
import hashlib
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcard.config import settings

__all__ = ["Cache", "folder", "key", "remembered", "source_digest"]

CHECKSUM = 8  # bytes
IN_MEMORY = 16384  # entries; an embedding of the embedded encoder takes 1.5 kB
PATIENCE = 0.5  # seconds to wait for another process that writes
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def key(*parts: str) -> bytes:
    """What names a value: the digest of all that it depends on, such as a model's digest and a text."""
    found = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass")
        found.update(len(content).to_bytes(8, "big") + content)
    return found.digest()


@functools.cache
def source_digest(*paths: Path) -> str:
    """sha256 of code: what it computed is not what another version of it computes."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def remembered(keys: Sequence[bytes], compute: Callable[[list[int]], Sequence[bytes]]) -> list[bytes]:
    """The value of each key; `compute` is called once, with the places of those that are not known, each once."""
    limit = settings().cache_mb * 1_000_000
    places = {k: i for i, k in reversed(list(enumerate(keys)))}  # of equal keys the first
    known = _memory.read(places) if limit else {}
    disk = Cache(folder() / "values.sqlite", limit)
    if limit and len(known) < len(places):
        found = disk.read([k for k in places if k not in known])
        _memory.write(found)
        known |= found
    missing = sorted(place for k, place in places.items() if k not in known)
    if missing:
        new = dict(zip((keys[place] for place in missing), compute(missing), strict=True))
        known |= new
        if limit:
            _memory.write(new)
            disk.write(new)
    return [known[k] for k in keys]


def folder() -> Path:
    """Where the cache lies; it may be deleted at any time."""
    return settings().home / "cache"


@dataclass(frozen=True)
class Cache:
    """Values in an SQLite file of about `limit` bytes at most; what was written first goes first.

    Every call opens the file anew, so threads, forks and other processes may use it too.
    """

    path: Path
    limit: int

    def read(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The values that are there and whole."""
        found: dict[bytes, bytes] = {}

        def look_up(file: sqlite3.Connection) -> None:
            for k in keys:
                row = file.execute("SELECT value FROM entries WHERE key = ?", (k,)).fetchone()
                if row is not None and (value := _unsealed(k, row[0])) is not None:
                    found[k] = value

        if _is_file(self.path):
            self._use(look_up)
        return found

    def write(self, values: Mapping[bytes, bytes]) -> None:
        """Add values, in place of those of the same keys."""
        rows = [(k, _sealed(k, value)) for k, value in values.items()]

        def add(file: sqlite3.Connection) -> None:
            file.execute("BEGIN IMMEDIATE")
            file.executemany("INSERT OR REPLACE INTO entries (key, value) VALUES (?, ?)", rows)
            while self._size(file) > self.limit:
                file.execute(
                    "DELETE FROM entries WHERE id <= (SELECT min(id) + (max(id) - min(id)) / 4 FROM entries)"
                )
            file.execute("COMMIT")

        self._use(add)

    def _use(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Open the file and let `work` use it; what goes wrong with it is passed over, and a damaged file deleted."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(
                sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
            ) as file:
                # Waiting for the disk takes longer than many a value takes to compute. What a power failure damages is
                # found by its checksum or by SQLite.
                file.execute("PRAGMA synchronous = OFF")
                file.execute("PRAGMA journal_mode = WAL")
                file.execute(
                    "CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, key BLOB UNIQUE, value BLOB)"
                )
                work(file)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE:
                self._delete()
        except OSError:
            pass

    def _delete(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                self.path.with_name(self.path.name + suffix).unlink()

    def _size(self, file: sqlite3.Connection) -> int:
        """Bytes of the pages in use; 0 where no entry is left."""
        if file.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is None:
            return 0
        pages, free, size = (
            file.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


class _Memory:
    """The values that were used last, in this process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        with self._lock:
            found = {k: self._values[k] for k in keys if k in self._values}
            for k in found:
                self._values.move_to_end(k)
        return found

    def write(self, values: Mapping[bytes, bytes]) -> None:
        with self._lock:
            self._values.update(values)
            while len(self._values) > self._most:
                self._values.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()


_memory = _Memory(IN_MEMORY)


def _sealed(k: bytes, value: bytes) -> bytes:
    return hashlib.sha256(k + value).digest()[:CHECKSUM] + value


def _unsealed(k: bytes, stored: object) -> bytes | None:
    """The value, or None where it is not what was stored under this key."""
    if not isinstance(stored, bytes) or _sealed(k, stored[CHECKSUM:]) != stored:
        return None
    return stored[CHECKSUM:]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
