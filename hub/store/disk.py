"""Crash-safe writing: a crash, a full disk or a concurrent process never leaves a partial file in place."""

import errno
import glob
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from kcard.errors import DiskFull, HubError

if sys.platform != "win32":  # without such locks, the age of a folder decides
    import fcntl

__all__ = [
    "BUFFER",
    "Readable",
    "beside",
    "copy_hashing",
    "discard",
    "explained",
    "is_full",
    "link_or_copy",
    "partial_folder",
    "private",
    "remains",
    "sole_use",
    "sweep",
    "sync_folder",
]

BUFFER = 1 << 20
STALE_SECONDS = 24 * 3600


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


def copy_hashing(source: Readable, target: Path) -> tuple[str, int]:
    """Copy a stream to a new file and flush it; returns its sha256 and size in bytes."""
    digest, size = hashlib.sha256(), 0
    with target.open("xb") as stream:
        while block := source.read(BUFFER):
            digest.update(block)
            size += stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest(), size


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it if the file system can't."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def private(path: str, flags: int) -> int:
    """An opener for `open`: a new file is for its owner only."""
    return os.open(path, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable, on systems that can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def partial_folder(parent: Path, prefix: str = "") -> Iterator[Path]:
    """A new folder for a write in progress, deleted at the end of the block unless it was renamed.

    The process locks it, so that `remains` can tell it from the folder of a killed process.
    """
    parent.mkdir(parents=True, exist_ok=True)
    folder, lock = _made(parent, prefix)
    try:
        yield folder
    finally:
        discard(folder)
        if lock is not None:
            os.close(lock)


@contextmanager
def sole_use(folder: Path) -> Iterator[bool]:
    """Lock a folder until the end of the block; yields False if it is missing, or another process or thread has it."""
    try:
        lock = _lock(folder)
    except (FileNotFoundError, BlockingIOError):
        yield False
        return
    try:
        yield True
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A partial folder next to `target`, to rename into place; deletes remains of killed processes."""
    prefix = f".{target.name}.kcard-"
    sweep(target.parent, f"{glob.escape(prefix)}????????")
    with partial_folder(target.parent, prefix) as folder:
        yield folder


def _made(parent: Path, prefix: str) -> tuple[Path, int | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            lock = _lock(folder)
        except (FileNotFoundError, BlockingIOError):  # swept before it was locked
            discard(folder)
            continue
        if lock is None or folder.exists():
            return folder, lock
        os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder; None if the system can't. Raises BlockingIOError if another process has the lock."""
    if sys.platform == "win32":
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # a network file system
        os.close(handle)
        return None
    return handle


def discard(folder: Path) -> None:
    """Delete a folder tree, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)


def remains(parent: Path, pattern: str = "*") -> Iterator[Path]:
    """Partial folders of killed processes, each locked while it is yielded.

    On systems without locks: those unchanged for a day.
    """
    for entry in sorted(parent.glob(pattern)) if parent.is_dir() else []:
        try:
            lock = _lock(entry)
            if lock is None and entry.stat().st_mtime > time.time() - STALE_SECONDS:
                continue
        except (FileNotFoundError, NotADirectoryError, BlockingIOError):  # finished, or in progress
            continue
        try:
            yield entry
        finally:
            if lock is not None:
                os.close(lock)


def sweep(parent: Path, pattern: str = "*") -> None:
    """Delete the remains of killed processes."""
    for folder in remains(parent, pattern):
        discard(folder)


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn an OSError (a full disk, no permission) into a HubError with one line."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        message = f"{doing}: {error.strerror or error}{where}; the hub is unchanged"
        if is_full(error):
            raise DiskFull(f"{message}; free some space and try again") from error
        raise HubError(message) from error


def is_full(error: OSError) -> bool:
    """Whether the disk, a quota, or the limit of a file's size allows no more bytes."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
