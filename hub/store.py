"""The content-addressed store: every file once, under its sha256, read-only.

It knows files and digests, no cards and no database. A blob appears by a rename after its bytes are on the
disk, so a blob that exists is whole; one that was damaged later is found when it is read.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kcard.errors import DamagedCard
from kcard.faults import reach
from kcard.hub.disk import Readable, copy_hashing, partial_folder, sync_folder
from kcard.manifest import file_digest

__all__ = ["Blob", "BlobStore"]

READ_ONLY = 0o444


@dataclass(frozen=True)
class Blob:
    """A stored file; `size` in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True)
class BlobStore:
    """Blobs at `root`/ab/abcdef…; `partial` is where they are written first, in the same file system."""

    root: Path
    partial: Path

    def path(self, sha256: str) -> Path:
        """Where the blob lies, or would lie."""
        return self.root / sha256[:2] / sha256

    def put(self, source: Path, expected: str) -> Blob:
        """Store a file of that sha256; a blob that is there and whole is kept, a damaged one replaced.

        Raises DamagedCard where the file has another sha256.
        """
        if self.fault(expected) is None:
            return Blob(expected, source.stat().st_size)
        with source.open("rb") as stream:
            return self.put_stream(stream, expected, str(source))

    def put_stream(self, stream: Readable, expected: str, where: str) -> Blob:
        """Store what a stream holds; DamagedCard, which names `where`, for another sha256 than expected."""
        with partial_folder(self.partial) as folder:
            sha256, size = copy_hashing(stream, folder / "blob")
            reach("blob.copied")
            if sha256 != expected:
                raise DamagedCard(f"{where} has sha256 {sha256[:12]}…, not {expected[:12]}…: it was changed")
            self._place(folder / "blob", sha256)
        return Blob(sha256, size)

    def _place(self, copy: Path, sha256: str) -> None:
        target = self.path(sha256)
        copy.chmod(READ_ONLY)
        reach("blob.read-only")
        if not target.parent.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(self.root)
        copy.replace(target)
        sync_folder(target.parent)
        reach("blob.placed")

    def fault(self, sha256: str) -> str | None:
        """None for a blob that is there and whole, otherwise what is wrong with it. Reads every byte."""
        try:
            found = file_digest(self.path(sha256))
        except FileNotFoundError:
            return "missing"
        return None if found == sha256 else f"damaged: sha256 {found[:12]}…, not {sha256[:12]}…"

    def open(self, sha256: str) -> BinaryIO:
        """The blob as a stream whose bytes have been verified; DamagedCard where they are not as stored."""
        if (fault := self.fault(sha256)) is not None:
            raise DamagedCard(f"blob {sha256[:12]}… in {self.root} is {fault}")
        return self.path(sha256).open("rb")

    def holds(self, sha256: str) -> bool:
        """Whether the blob is there, without reading it."""
        return self.path(sha256).is_file()

    def size(self, sha256: str) -> int:
        """Size of a blob in bytes; 0 where another process has just deleted it."""
        try:
            return self.path(sha256).stat().st_size
        except FileNotFoundError:
            return 0

    def delete(self, sha256: str) -> None:
        """Delete a blob, if it is there."""
        path = self.path(sha256)
        if os.name == "nt" and path.exists():  # Windows deletes no read-only file
            path.chmod(0o666)
        path.unlink(missing_ok=True)

    def __iter__(self) -> Iterator[str]:
        """sha256 of every blob there is, sorted."""
        yield from sorted(path.name for path in self.root.glob("??/*"))
