"""Stores of blobs, the store on disk, and folders that appear completely or not at all."""

import errno
import glob
import hashlib
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kcard.errors import DamagedCard, DiskFull, HubError, UsageError
from kcard.io import STALE_SECONDS, lock_alone

BUFFER = 1 << 20


def copy_hashing(source: BinaryIO, target: Path) -> tuple[str, int]:
    """Copy a stream to a new file and flush it; return its sha256 and size in bytes."""
    digest, size = hashlib.sha256(), 0
    with target.open("xb") as stream:
        while block := source.read(BUFFER):
            digest.update(block)
            size += stream.write(block)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest(), size


def open_private(path: str, flags: int) -> int:
    """Open a file for `open(opener=...)`: only its owner may read a new one."""
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
    """Yield a new folder for a write in progress, deleted at the end of the block unless it was renamed.

    The process locks it, so that `abandoned_folders` can tell it from the folder of a killed process.
    """
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            lock = lock_alone(folder)
        except (FileNotFoundError, BlockingIOError):  # swept before it was locked
            discard(folder)
            continue
        if lock is None or folder.exists():
            break
        os.close(lock)
    try:
        yield folder
    finally:
        discard(folder)
        if lock is not None:
            os.close(lock)


@contextmanager
def try_lock(folder: Path) -> Iterator[bool]:
    """Lock a folder until the end of the block; yield False if it is missing or another process or thread has it."""
    try:
        lock = lock_alone(folder)
    except (FileNotFoundError, BlockingIOError):
        yield False
        return
    try:
        yield True
    finally:
        if lock is not None:
            os.close(lock)


@contextmanager
def partial_sibling(target: Path) -> Iterator[Path]:
    """Yield a partial folder next to `target`, from which to rename a file or folder into place.

    It first deletes such folders that killed processes left behind.
    """
    prefix = f".{target.name}.kcard-"
    sweep(target.parent, f"{glob.escape(prefix)}????????")
    with partial_folder(target.parent, prefix) as folder:
        yield folder


def discard(folder: Path) -> None:
    """Delete a folder tree, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)


def abandoned_folders(parent: Path, pattern: str = "*") -> Iterator[Path]:
    """Yield partial folders of killed processes, each locked while it is yielded.

    On systems without locks, those that have not changed for a day.
    """
    for entry in sorted(parent.glob(pattern)):
        try:
            lock = lock_alone(entry)
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
    """Delete partial folders of killed processes."""
    for folder in abandoned_folders(parent, pattern):
        discard(folder)


@contextmanager
def explain_os_errors(doing: str) -> Iterator[None]:
    """Turn an OSError (a full disk, no permission) into a HubError with one line."""
    try:
        yield
    except OSError as error:
        reason = str(error.strerror or error)
        if error.filename:
            reason += f" ({error.filename})"
        message = f"{doing}: {reason}; the hub is unchanged"
        if is_full(error):
            raise DiskFull(f"{message}; free some space and try again") from error
        raise HubError(message) from error


def is_full(error: OSError) -> bool:
    """Return whether the disk, a quota, or the limit of a file's size allows no more bytes."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


# The interface of stores of blobs: every file once, named by its sha256.
#
# A blob appears complete or not at all. Damage that happens later is found when the blob is verified.


@dataclass(frozen=True)
class Blob:
    """A stored file; `size` in bytes."""

    sha256: str
    size: int


class Blobs(ABC):
    """A store. Raises HubError if it is unavailable, and DamagedCard if a blob to read is missing.

    `partial` is a local folder for writes in progress: see `partial_folder`.
    """

    partial: Path

    @abstractmethod
    def holds(self, sha256: str) -> bool:
        """Return whether the blob exists, without reading it."""

    @abstractmethod
    def size(self, sha256: str) -> int:
        """Return a blob's size in bytes; 0 if missing."""

    @abstractmethod
    def place(self, path: Path, sha256: str, size: int) -> None:
        """Store a hashed and flushed file from `partial`, which is moved or deleted."""

    @abstractmethod
    def read(self, sha256: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Return the bytes from `start` up to `stop`, in blocks of a few megabytes at most."""

    @abstractmethod
    def open(self, sha256: str) -> BinaryIO:
        """Open the blob as a seekable stream, unverified; the caller closes it."""

    @abstractmethod
    def materialize(self, sha256: str, target: Path) -> None:
        """Create a read-only file of the verified blob, which may be a hard link."""

    @abstractmethod
    def delete(self, *sha256: str) -> None:
        """Delete blobs; missing ones are ignored."""

    @abstractmethod
    def where(self, sha256: str | None = None) -> str:
        """Return the location of a blob, or of the store, for messages."""

    @abstractmethod
    def sizes(self) -> Iterator[tuple[str, int]]:
        """Return the sha256 and the size of every blob, sorted."""

    def remains(self, delete: bool) -> Iterator[tuple[str, int]]:  # noqa: ARG002
        """Yield the location and size of what killed uploads left in the store; optionally delete it."""
        yield from ()

    def put(self, source: Path, expected: str) -> Blob:
        """Store a file with that sha256, unless an intact blob exists. Raises DamagedCard for another sha256."""
        if self.find_fault(expected) is None:
            return Blob(expected, source.stat().st_size)
        with source.open("rb") as stream:
            return self.put_stream(stream, expected, str(source))

    def put_stream(self, stream: BinaryIO, expected: str, where: str) -> Blob:
        """Store a stream. Raises DamagedCard, with `where`, for another sha256 than expected."""
        with partial_folder(self.partial) as folder:
            sha256, size = copy_hashing(stream, folder / "blob")
            if sha256 != expected:
                raise DamagedCard(f"{where} was changed: sha256 {sha256[:12]}…, expected {expected[:12]}…")
            self.place(folder / "blob", sha256, size)
        return Blob(sha256, size)

    def find_fault(self, sha256: str) -> str | None:
        """Return what is wrong with a blob, reading every byte; None if it is intact."""
        if not self.holds(sha256):
            return "missing"
        digest = hashlib.sha256()
        try:
            for block in self.read(sha256):
                digest.update(block)
        except DamagedCard:  # deleted concurrently
            return "missing"
        if digest.hexdigest() != sha256:
            return describe_mismatch(digest.hexdigest(), sha256)
        return None


def open_store(root: Path, url: str | None) -> Blobs:
    """Open the store of the hub in the folder `root`: its blobs/, or an fsspec URL."""
    if url is None:
        return BlobStore(root / "blobs", root / "partial")
    from kcard.hub.object_store import ObjectStore

    return ObjectStore.at(url, root / "partial")


def describe_mismatch(actual: str, sha256: str) -> str:
    """Return the description of a sha256 mismatch."""
    return f"damaged: sha256 {actual[:12]}…, expected {sha256[:12]}…"


def is_digest(name: str) -> bool:
    """Return whether a name is a sha256 in hexadecimal."""
    return len(name) == 64 and not set(name) - set("0123456789abcdef")


# Creates folders of verified files, completely or not at all.


def check_new_folder(destination: Path) -> Path:
    """Return the absolute path of a new or empty folder. Raises UsageError for any other, and for a symbolic link."""
    target = destination.expanduser().absolute()
    if target.is_symlink():
        raise UsageError(f"{target} is a symbolic link: choose a new folder")
    if target.exists() and not (target.is_dir() and next(target.iterdir(), None) is None):
        raise UsageError(f"{target} exists and is not an empty folder: choose a new folder")
    return target


def create_folder(
    destination: Path,
    files: Mapping[str, str],
    open_file: Callable[[str], BinaryIO],
    make_error: Callable[[str, str], DamagedCard],
) -> Path:
    """Create a folder of files (sha256 by path) and return its absolute path.

    `open_file` opens the file of a path; `make_error` makes the error from a path and what is wrong with its file.
    Raises UsageError if the destination is a file or a folder that is not empty.
    """
    target = check_new_folder(destination)
    with partial_sibling(target) as scratch:
        new = scratch / "new"
        for path, sha256 in files.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            with open_file(path) as stream:
                actual, _ = copy_hashing(stream, new / path)
            if actual != sha256:
                raise make_error(path, describe_mismatch(actual, sha256))
        if target.is_dir():
            target.rmdir()
        new.rename(target)
    sync_folder(target.parent)
    return target


# Blobs as read-only files in a folder, flushed and then renamed into place.

READ_ONLY = 0o444


@dataclass(frozen=True)
class BlobStore(Blobs):
    """Blobs at `root`/ab/abcdef…, first written to `partial` in the same file system."""

    root: Path
    partial: Path

    def path(self, sha256: str) -> Path:
        """Return the path of a blob, whether or not it exists."""
        return self.root / sha256[:2] / sha256

    def where(self, sha256: str | None = None) -> str:
        return str(self.root if sha256 is None else self.path(sha256))

    def place(self, path: Path, sha256: str, size: int) -> None:
        if path.stat().st_size != size:
            raise DamagedCard(f"{path} is truncated: {path.stat().st_size} bytes, expected {size}")
        target = self.path(sha256)
        path.chmod(READ_ONLY)
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(self.root)
        path.replace(target)
        sync_folder(target.parent)

    def read(self, sha256: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        stream = self.open(sha256)  # at once, so that a missing blob raises here
        stream.seek(start)

        def read_blocks() -> Iterator[bytes]:
            with stream:
                end = os.fstat(stream.fileno()).st_size if stop is None else stop
                while block := stream.read(min(BUFFER, end - stream.tell())):
                    yield block

        return read_blocks()

    def open(self, sha256: str) -> BinaryIO:
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise DamagedCard(f"blob {self.path(sha256)} is missing") from None

    def materialize(self, sha256: str, target: Path) -> None:
        wrong = self.find_fault(sha256)
        if wrong is not None:
            raise DamagedCard(wrong)
        try:
            os.link(self.path(sha256), target)
        except FileNotFoundError:
            raise
        except OSError:  # the file system has no hard links
            shutil.copyfile(self.path(sha256), target)

    def holds(self, sha256: str) -> bool:
        return self.path(sha256).is_file()

    def size(self, sha256: str) -> int:
        try:
            return self.path(sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def delete(self, *sha256: str) -> None:
        for path in map(self.path, sha256):
            if os.name == "nt" and path.exists():  # Windows can't delete read-only files
                path.chmod(0o666)
            path.unlink(missing_ok=True)

    def sizes(self) -> Iterator[tuple[str, int]]:
        for folder in sorted(self.root.glob("??")):
            for path in sorted(folder.iterdir()):
                if is_digest(path.name):
                    yield path.name, self.size(path.name)
