"""Writing files so that a crash, a full disk or a second process never leaves half a file in sight."""

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

from kcard.errors import HubError
from kcard.faults import reach

if sys.platform != "win32":  # which has no such locks: there the age of a folder tells
    import fcntl

__all__ = [
    "BUFFER",
    "Readable",
    "beside",
    "copy_hashing",
    "discard",
    "explained",
    "link_or_copy",
    "partial_folder",
    "remains",
    "sweep",
    "sync_folder",
]

BUFFER = 1 << 20
STALE_SECONDS = 24 * 3600


class Readable(Protocol):
    """Whatever bytes can be read from."""

    def read(self, size: int = -1, /) -> bytes: ...


def copy_hashing(source: Readable, target: Path) -> tuple[str, int]:
    """Copy a stream into a new file and flush it to the disk; sha256 and size in bytes of what was copied."""
    digest, size = hashlib.sha256(), 0
    with target.open("xb") as stream:
        while block := source.read(BUFFER):
            digest.update(block)
            size += stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest(), size


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name; a copy where the file system has no hard links, or too many to this file."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a power cut, where the system lets a folder be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def partial_folder(parent: Path, prefix: str = "") -> Iterator[Path]:
    """A new folder to build something in; gone when the block ends, unless it was renamed into its place.

    Its process holds a lock on it, which ends with the process however it ends: so `remains` can tell a
    folder that is being written from one that a killed process left.
    """
    parent.mkdir(parents=True, exist_ok=True)
    folder, lock = _made(parent, prefix)
    try:
        reach("partial.made")
        yield folder
    finally:
        discard(folder)
        if lock is not None:
            os.close(lock)


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A partial folder beside `target`, from where a rename puts it in place; remains of killed ones go."""
    prefix = f".{target.name}.kcard-"
    sweep(target.parent, f"{glob.escape(prefix)}????????")
    with partial_folder(target.parent, prefix) as folder:
        yield folder


def _made(parent: Path, prefix: str) -> tuple[Path, int | None]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            lock = _lock(folder)
        except (FileNotFoundError, BlockingIOError):  # taken for remains before it was locked
            discard(folder)
            continue
        if lock is None or folder.exists():
            return folder, lock
        os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder; None where the system can't. BlockingIOError: another process has it."""
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
    """Delete a folder tree, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


def remains(parent: Path, pattern: str = "*") -> Iterator[Path]:
    """Partial folders in `parent` that no living process writes, each locked while it is looked at.

    Where the system knows no locks: those that nobody has changed for a day.
    """
    for entry in sorted(parent.glob(pattern)) if parent.is_dir() else []:
        try:
            lock = _lock(entry)
            if lock is None and entry.stat().st_mtime > time.time() - STALE_SECONDS:
                continue
        except (FileNotFoundError, NotADirectoryError, BlockingIOError):  # just finished, or being written
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
    """Turn what the operating system refuses (a full disk, no permission) into a HubError of one line."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        where = f" ({error.filename})" if error.filename else ""
        remedy = "; free some space and try again" if full else ""
        raise HubError(
            f"{doing}: {error.strerror or error}{where}; the hub is as it was before{remedy}"
        ) from error
