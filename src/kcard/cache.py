"""A cache on disk, and the embeddings that are kept in it.

The cache may lose entries but never return wrong ones: each has a checksum, and one that can't be read or written
(damaged, full, read-only, in use) counts as missing. It stores bytes under keys, whatever they mean.
"""

import contextlib
import functools
import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from kcard.batching import LRUCache
from kcard.config import settings
from kcard.embedded import minilm, networks
from kcard.interfaces import Array

CHECKSUM = 8  # bytes
MAX_ENTRIES_IN_MEMORY = 16384  # entries; an embedding of the embedded encoder takes 1.5 kB
MAX_WAIT_SECONDS = 0.5  # seconds to wait for another process that is writing
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def key(*parts: str) -> bytes:
    """Return the key of a value: the digest of everything it depends on, such as a model's digest and a text."""
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.digest()


@functools.cache
def source_digest(*paths: Path) -> str:
    """Return the sha256 of source files, since another version may compute other values."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def remembered(keys: Sequence[bytes], compute: Callable[[list[int]], Sequence[bytes]]) -> list[bytes]:
    """Return the value of each key; `compute` is called once, with the indices of the keys that are not cached."""
    limit = settings().cache_mb * 1_000_000
    places: dict[bytes, int] = {}
    for place, k in enumerate(keys):
        places.setdefault(k, place)  # of equal keys the first
    values = memory.read(places) if limit else {}
    disk = Cache(folder() / "values.sqlite", limit)
    if limit and len(values) < len(places):
        stored = disk.read([k for k in places if k not in values])
        memory.write(stored)
        values |= stored
    missing = [place for k, place in places.items() if k not in values]
    if missing:
        new = {}
        for place, value in zip(missing, compute(missing), strict=True):
            new[keys[place]] = value
        values |= new
        if limit:
            memory.write(new)
            disk.write(new)
    return [values[k] for k in keys]


def folder() -> Path:
    """Return the folder of the cache, which may be deleted at any time."""
    return settings().home / "cache"


@dataclass(frozen=True)
class Cache:
    """Values in an SQLite file of at most about `limit` bytes; the oldest entries are deleted first.

    Every call opens the file anew, so threads, forks and other processes may share it.
    """

    path: Path
    limit: int

    def read(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the values that are present and undamaged."""
        values: dict[bytes, bytes] = {}

        def look_up(file: sqlite3.Connection) -> None:
            for k in keys:
                row = file.execute("SELECT value FROM entries WHERE key = ?", (k,)).fetchone()
                # An entry that fails its checksum counts as missing.
                sealed = None if row is None else row[0]
                if isinstance(sealed, bytes) and _sealed(k, sealed[CHECKSUM:]) == sealed:
                    values[k] = sealed[CHECKSUM:]

        try:
            exists = self.path.is_file()
        except OSError:
            exists = False
        if exists:
            self._use(look_up)
        return values

    def write(self, values: Mapping[bytes, bytes]) -> None:
        """Store values, replacing those of the same keys."""
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
        """Open the file and call `work` with it; errors are ignored, and a damaged file is deleted."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(
                sqlite3.connect(self.path, timeout=MAX_WAIT_SECONDS, isolation_level=None)
            ) as file:
                # Waiting for the disk often takes longer than computing a value. Checksums and SQLite detect the damage
                # of a power failure.
                file.execute("PRAGMA synchronous = OFF")
                file.execute("PRAGMA journal_mode = WAL")
                file.execute(
                    "CREATE TABLE IF NOT EXISTS entries (id INTEGER PRIMARY KEY, key BLOB UNIQUE, value BLOB)"
                )
                work(file)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE:
                for suffix in ("", "-wal", "-shm"):
                    with contextlib.suppress(OSError):
                        self.path.with_name(self.path.name + suffix).unlink()
        except OSError:
            pass

    def _size(self, file: sqlite3.Connection) -> int:
        """Return the bytes of pages in use; 0 if no entry is left."""
        if file.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is None:
            return 0
        pages, free, size = (
            file.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


memory: LRUCache[bytes, bytes] = LRUCache(MAX_ENTRIES_IN_MEMORY)


def _sealed(k: bytes, value: bytes) -> bytes:
    return hashlib.sha256(k + value).digest()[:CHECKSUM] + value


# Cached embeddings, of the embedded encoder and of any other that has a digest.
#
# Texts that are embedded together repeatedly, such as the descriptions of all cards of a pool, are cached as a matrix.

SLOW_COUNT = 1000  # texts, which take seconds to embed
MAX_MATRICES_BYTES = 256_000_000  # bytes on disk; 10,000 cards take 15 MB


def embed(texts: Sequence[str]) -> Array:
    """Return the embeddings of texts by the embedded encoder (minilm.embed), cached."""
    return remembered_embeddings(_digest(), texts, minilm.embed) if texts else minilm.embed(texts)


def matrix(texts: Sequence[str]) -> Array:
    """Return the same, cached as one read-only matrix for these texts."""
    limit = min(settings().cache_mb * 1_000_000, MAX_MATRICES_BYTES)
    if not limit or not texts:
        return embed(texts)
    whole = key("matrix", _digest(), *texts)
    disk = Cache(folder() / "matrices.sqlite", limit)
    stored = disk.read([whole]).get(whole)
    if stored is not None:
        return np.frombuffer(stored, dtype=np.float32).reshape(len(texts), -1)
    if len(texts) > SLOW_COUNT:
        logging.getLogger(__name__).warning(
            "reading %d descriptions for the first time, which takes a while", len(texts)
        )
    rows = embed(texts)
    disk.write({whole: rows.tobytes()})
    return rows


def remembered_embeddings(
    model: str, texts: Sequence[str], compute: Callable[[Sequence[str]], Array]
) -> Array:
    """Return the vectors that `compute` gives for the texts, float32, shape (n, d), n at least 1; cached.

    `model`: the digest of everything that determines a vector besides its text: weights, pooling, truncation.
    """
    keys = [key("embedding", model, text) for text in texts]

    def compute_rows(places: list[int]) -> list[bytes]:
        vectors = np.ascontiguousarray(compute([texts[i] for i in places]), dtype=np.float32)
        return [row.tobytes() for row in vectors]

    rows = remembered(keys, compute_rows)
    return np.stack([np.frombuffer(row, dtype=np.float32) for row in rows])


@functools.cache
def _digest() -> str:
    """Return the digest of the embedded encoder: weights, our code, and the libraries that run it."""
    parts = [
        minilm.SHA256,
        source_digest(Path(minilm.__file__), Path(networks.__file__)),
        version("onnxruntime"),
        version("tokenizers"),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
