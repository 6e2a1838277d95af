"""Writing files so that a crash, a full disk or a second process never leaves half a file in sight."""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kcard.errors import HubError

__all__ = ["copy_hashing", "discard", "explained", "partial_folder", "sweep", "sync_folder"]

BUFFER = 1 << 20
STALE_SECONDS = 24 * 3600


def copy_hashing(source: BinaryIO, target: Path) -> tuple[str, int]:
    """Copy a stream into a new file and flush it to the disk; sha256 and size in bytes of what was copied."""
    digest, size = hashlib.sha256(), 0
    with target.open("xb") as stream:
        while block := source.read(BUFFER):
            digest.update(block)
            size += stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest(), size


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
    """A new folder to build something in; gone when the block ends, unless it was renamed into its place."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        discard(folder)


def discard(folder: Path) -> None:
    """Delete a folder tree, if it is there."""
    shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Delete what killed processes left in `parent` a day ago or earlier."""
    if not parent.is_dir():
        return
    for entry in parent.iterdir():
        try:
            stale = entry.stat().st_mtime < time.time() - STALE_SECONDS
        except FileNotFoundError:  # its owner has just finished
            continue
        if stale:
            discard(entry)


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn what the operating system refuses (a full disk, no permission) into a HubError of one line."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise HubError(f"{doing}: {error.strerror or error}{where}; the hub is as it was before") from error
