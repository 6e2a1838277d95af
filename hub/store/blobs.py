"""The interface of stores of blobs: every file once, named by its sha256.

A blob appears complete or not at all. Later damage is found when it is verified.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from kcard.errors import DamagedCard
from kcard.hub.store.disk import Readable, copy_hashing, partial_folder

__all__ = ["Blob", "Blobs", "fault", "is_digest", "opened_store", "put", "put_stream", "unlike", "verified"]


@dataclass(frozen=True)
class Blob:
    """A stored file; `size` in bytes."""

    sha256: str
    size: int


class Blobs(Protocol):
    """A store. Raises HubError if it is unavailable, and DamagedCard if a blob to read is missing."""

    @property
    def partial(self) -> Path:
        """A local folder for writes in progress: see kcard.hub.store.disk.partial_folder."""

    def holds(self, sha256: str) -> bool:
        """Whether the blob exists, without reading it."""

    def size(self, sha256: str) -> int:
        """Size of a blob in bytes; 0 if missing."""

    def place(self, path: Path, sha256: str, size: int) -> None:
        """Store a hashed and flushed file from `partial`, which is moved or deleted."""

    def read(self, sha256: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to `stop`, in blocks of a few megabytes at most."""

    def open(self, sha256: str) -> BinaryIO:
        """The unverified blob as a seekable stream; the caller closes it."""

    def materialize(self, sha256: str, target: Path) -> None:
        """Create a read-only file of the verified blob, which may be a hard link."""

    def hard_link(self, sha256: str, target: Path) -> bool:
        """Create a hard link to the blob; False if the store has none."""

    def delete(self, *sha256: str) -> None:
        """Delete blobs; missing ones are ignored."""

    def where(self, sha256: str | None = None) -> str:
        """The location of a blob, or of the store, for messages."""

    def sizes(self) -> Iterator[tuple[str, int]]:
        """sha256 and size of every blob, sorted."""

    def remains(self, delete: bool) -> Iterator[tuple[str, int]]:
        """Location and size of what killed uploads left in the store; optionally deletes it."""

    def __hash__(self) -> int:
        """By identity."""

    def __iter__(self) -> Iterator[str]:
        """sha256 of every blob, sorted."""


def opened_store(root: Path, url: str | None) -> Blobs:
    """The store of the hub in the folder `root`: its blobs/, or the fsspec URL."""
    from kcard.hub.store.local_store import BlobStore

    if url is None:
        return BlobStore(root / "blobs", root / "partial")
    from kcard.hub.store.object_store import ObjectStore

    return ObjectStore.at(url, root / "partial")


def put(blobs: Blobs, source: Path, expected: str) -> Blob:
    """Store a file with that sha256, unless an intact blob exists. Raises DamagedCard for another sha256."""
    if fault(blobs, expected) is None:
        return Blob(expected, source.stat().st_size)
    with source.open("rb") as stream:
        return put_stream(blobs, stream, expected, str(source))


def put_stream(blobs: Blobs, stream: Readable, expected: str, where: str) -> Blob:
    """Store a stream. Raises DamagedCard, with `where`, for another sha256 than expected."""
    with partial_folder(blobs.partial) as folder:
        sha256, size = copy_hashing(stream, folder / "blob")
        if sha256 != expected:
            raise DamagedCard(f"{where} was changed: sha256 {sha256[:12]}…, expected {expected[:12]}…")
        blobs.place(folder / "blob", sha256, size)
    return Blob(sha256, size)


def fault(blobs: Blobs, sha256: str) -> str | None:
    """What is wrong with a blob; None if it is intact. Reads every byte."""
    if not blobs.holds(sha256):
        return "missing"
    digest = hashlib.sha256()
    try:
        for block in blobs.read(sha256):
            digest.update(block)
    except DamagedCard:  # deleted concurrently
        return "missing"
    return None if digest.hexdigest() == sha256 else unlike(digest.hexdigest(), sha256)


def verified(blobs: Blobs, sha256: str) -> BinaryIO:
    """The blob as a stream, verified before. Raises DamagedCard."""
    if (wrong := fault(blobs, sha256)) is not None:
        raise DamagedCard(f"blob {blobs.where(sha256)} is {wrong}")
    return blobs.open(sha256)


def unlike(found: str, sha256: str) -> str:
    """The description of a sha256 mismatch."""
    return f"damaged: sha256 {found[:12]}…, expected {sha256[:12]}…"


def is_digest(name: str) -> bool:
    """Whether a name is a sha256 in hexadecimal."""
    return len(name) == 64 and not set(name) - set("0123456789abcdef")
