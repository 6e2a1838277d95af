"""Files that are written whole or not at all."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

if sys.platform != "win32":
    import fcntl

__all__ = ["locked", "replacing", "write_text"]


@contextmanager
def replacing(path: Path, *, parents: bool = False, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A stream whose content takes the place of the file when the block ends; where it fails, the old file stays.

    A reader sees the old file or the new one, never half of either.

    parents  whether the folder is made where it is missing
    mode     permissions of the new file, less the umask
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    if parents:
        path.parent.mkdir(parents=True, exist_ok=True)
    partial.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, parents: bool = False) -> None:
    """Write a file anew, in UTF-8; see `replacing`. An OSError names the file, also where the disk is full."""
    try:
        with replacing(path, parents=parents) as stream:
            stream.write(text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other process into such a block for the folder meanwhile, where the system knows such locks."""
    if sys.platform == "win32" or not folder.is_dir():
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a network file system
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
