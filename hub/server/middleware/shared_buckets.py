"""Token buckets in a small file that the workers of a server share.

A bucket is one number: the time at which it will be full (the generic cell rate algorithm). The file has a fixed size.
A key has one of eight places; if all are taken, it replaces the bucket that is fullest, so that many new keys don't
free those who have spent theirs. Servers on several hosts count apart.
"""

import fcntl
import hashlib
import mmap
import os
import secrets
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["WINDOW", "SharedBuckets", "Taken", "create"]

WINDOW = 300  # seconds in which an empty bucket fills
SALT = 16  # random bytes at the start of the file: nobody can choose keys that share a place
SETS, WAYS = 8192, 8
PLACES = struct.Struct("=" + "Qd" * WAYS)  # digest of the key, and when its bucket will be full
SIZE = SALT + SETS * PLACES.size  # a megabyte


@dataclass(frozen=True)
class Taken:
    """The result of taking tokens: whether they were there, and how many are left.

    wait  seconds until the tokens are there, if they were not; otherwise until the bucket is full
    """

    allowed: bool
    left: int
    wait: float


def create(path: Path) -> None:
    """Create the file, with full buckets."""
    path.write_bytes(secrets.token_bytes(SALT) + bytes(SIZE - SALT))


class SharedBuckets:
    """Buckets by key that fill at `rate` tokens a minute and hold what they get in WINDOW seconds. Thread-safe.

    `path` is a file from `create`; None: the buckets of this process only. `clock` must be the same in all processes.
    """

    def __init__(
        self, rate: int, path: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.size = rate * WINDOW // 60
        self._each, self._clock = 60 / rate, clock
        self._lock = threading.Lock()
        self._file = None if path is None else os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._map = mmap.mmap(-1 if self._file is None else self._file, SIZE)
        if self._file is None:
            self._map[:SALT] = secrets.token_bytes(SALT)
        self._salt = bytes(self._map[:SALT])

    def take(self, key: str, count: int = 1) -> Taken:
        """Take tokens, all or none; never more than a full bucket has."""
        digest = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8, key=self._salt).digest())
        start = SALT + digest % SETS * PLACES.size
        with self._locked(start):
            now = self._clock()
            places = list(PLACES.unpack_from(self._map, start))
            place = _place(places, digest)
            full = max(places[place + 1], now) if places[place] == digest else now
            later = full + min(count, self.size) * self._each
            if later - now > WINDOW:
                return Taken(False, self._left(full - now), later - now - WINDOW)
            places[place : place + 2] = digest, later
            PLACES.pack_into(self._map, start, *places)
        return Taken(True, self._left(later - now), later - now)

    def _left(self, seconds: float) -> int:
        """The tokens of a bucket that will be full in so many seconds."""
        return int((WINDOW - seconds) / self._each)

    @contextmanager
    def _locked(self, start: int) -> Iterator[None]:
        """The kernel releases the lock of a process that is killed."""
        with self._lock:
            if self._file is None:
                yield
                return
            fcntl.lockf(self._file, fcntl.LOCK_EX, PLACES.size, start)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, PLACES.size, start)


def _place(places: list[float], digest: int) -> int:
    """The index of the key's place, otherwise of the bucket that is fullest."""
    own = next((i for i in range(0, 2 * WAYS, 2) if places[i] == digest), None)
    return min(range(0, 2 * WAYS, 2), key=lambda i: places[i + 1]) if own is None else own
