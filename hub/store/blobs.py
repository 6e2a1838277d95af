"""What a store of blobs can do, wherever they lie: every file once, under its sha256.

It knows files and digests, no cards and no database. A blob that exists is whole: whoever reads sees all of it or
nothing. One that was damaged later is found when it is verified.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from kcard.errors import DamagedCard
from kcard.faults import reach
from kcard.hub.store.disk import Readable, copy_hashing, partial_folder

__all__ = ["Blob", "Blobs", "fault", "is_digest", "opened_store", "put", "put_stream", "unlike", "verified"]


@dataclass(frozen=True)
class Blob:
    """A stored file; `size` in bytes."""

    sha256: str
    size: int


class Blobs(Protocol):
    """A store. HubError where it can't be reached; DamagedCard from `read`, `open` and `lay` for a missing blob."""

    @property
    def partial(self) -> Path:
        """A folder on this machine for what is on its way: see kcard.hub.store.disk.partial_folder."""

    def holds(self, sha256: str) -> bool:
        """Whether the blob is there, without reading it."""

    def size(self, sha256: str) -> int:
        """Size of a blob in bytes; 0 where it is not there."""

    def place(self, path: Path, sha256: str, size: int) -> None:
        """Take a file under `partial` that has been hashed and flushed to the disk; it is moved or deleted."""

    def read(self, sha256: str, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes from `start` up to `stop`, in blocks that are small enough for many readers at once."""

    def open(self, sha256: str) -> BinaryIO:
        """The blob as a stream that can seek, unverified; the caller closes it."""

    def lay(self, sha256: str, target: Path) -> None:
        """Make a file of the blob, verified; not to be changed, since it may be the blob by another name."""

    def keep(self, sha256: str, target: Path) -> bool:
        """Give the blob a second name that no deletion reaches; False where a store has no such thing."""

    def delete(self, *sha256: str) -> None:
        """Delete those blobs that are there."""

    def where(self, sha256: str | None = None) -> str:
        """What a user knows the place of a blob by, or that of the whole store."""

    def sizes(self) -> Iterator[tuple[str, int]]:
        """sha256 and size of every blob there is, sorted."""

    def remains(self, delete: bool) -> Iterator[tuple[str, int]]:
        """Place and size of what killed uploads left in the store, deleted where that is wanted."""

    def __iter__(self) -> Iterator[str]:
        """sha256 of every blob there is, sorted."""


def opened_store(root: Path, url: str | None) -> Blobs:
    """The store of the hub in the folder `root`: blobs/ in it, or where an fsspec URL says."""
    from kcard.hub.store.local_store import BlobStore

    if url is None:
        return BlobStore(root / "blobs", root / "partial")
    from kcard.hub.store.object_store import ObjectStore

    return ObjectStore.at(url, root / "partial")


def put(blobs: Blobs, source: Path, expected: str) -> Blob:
    """Store a file of that sha256; a blob that is there and whole is kept, a damaged one replaced.

    Raises DamagedCard where the file has another sha256.
    """
    if fault(blobs, expected) is None:
        return Blob(expected, source.stat().st_size)
    with source.open("rb") as stream:
        return put_stream(blobs, stream, expected, str(source))


def put_stream(blobs: Blobs, stream: Readable, expected: str, where: str) -> Blob:
    """Store what a stream holds; DamagedCard, which names `where`, for another sha256 than expected."""
    with partial_folder(blobs.partial) as folder:
        sha256, size = copy_hashing(stream, folder / "blob")
        reach("blob.copied")
        if sha256 != expected:
            raise DamagedCard(f"{where} has sha256 {sha256[:12]}…, not {expected[:12]}…: it was changed")
        blobs.place(folder / "blob", sha256, size)
    return Blob(sha256, size)


def fault(blobs: Blobs, sha256: str) -> str | None:
    """None for a blob that is there and whole, otherwise what is wrong with it. Reads every byte."""
    if not blobs.holds(sha256):
        return "missing"
    digest = hashlib.sha256()
    try:
        for block in blobs.read(sha256):
            digest.update(block)
    except DamagedCard:  # deleted just now
        return "missing"
    return None if digest.hexdigest() == sha256 else unlike(digest.hexdigest(), sha256)


def verified(blobs: Blobs, sha256: str) -> BinaryIO:
    """The blob as a stream whose bytes have been verified; DamagedCard where they are not as stored."""
    if (wrong := fault(blobs, sha256)) is not None:
        raise DamagedCard(f"blob {blobs.where(sha256)} is {wrong}")
    return blobs.open(sha256)


def unlike(found: str, sha256: str) -> str:
    """What is wrong with bytes of another sha256."""
    return f"damaged: sha256 {found[:12]}…, not {sha256[:12]}…"


def is_digest(name: str) -> bool:
    """Whether a name is a sha256 as blobs are named by."""
    return len(name) == 64 and not set(name) - set("0123456789abcdef")
