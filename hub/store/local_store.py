"""Blobs as read-only files in a folder, flushed and then renamed into place."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from kcard.errors import DamagedCard
from kcard.hub.store import blobs
from kcard.hub.store.blobs import Blob
from kcard.hub.store.disk import BUFFER, Readable, link_or_copy, sync_folder

__all__ = ["BlobStore"]

READ_ONLY = 0o444


@dataclass(frozen=True)
class BlobStore:
    """Blobs at `root`/ab/abcdef…, first written to `partial` in the same file system."""

    root: Path
    partial: Path

    def path(self, sha256: str) -> Path:
        """The path of a blob, whether or not it exists."""
        return self.root / sha256[:2] / sha256

    def where(self, sha256: str | None = None) -> str:
        return str(self.root if sha256 is None else self.path(sha256))

    def put(self, source: Path, expected: str) -> Blob:
        """See blobs.put."""
        return blobs.put(self, source, expected)

    def put_stream(self, stream: Readable, expected: str, where: str) -> Blob:
        """See blobs.put_stream."""
        return blobs.put_stream(self, stream, expected, where)

    def fault(self, sha256: str) -> str | None:
        """See blobs.fault."""
        return blobs.fault(self, sha256)

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
        stream = self.open(sha256)
        stream.seek(start)
        return _blocks(stream, None if stop is None else stop - start)

    def open(self, sha256: str) -> BinaryIO:
        try:
            return self.path(sha256).open("rb")
        except FileNotFoundError:
            raise DamagedCard(f"blob {self.path(sha256)} is missing") from None

    def materialize(self, sha256: str, target: Path) -> None:
        if (wrong := self.fault(sha256)) is not None:
            raise DamagedCard(wrong)
        link_or_copy(self.path(sha256), target)

    def hard_link(self, sha256: str, target: Path) -> bool:
        try:
            link_or_copy(self.path(sha256), target)
        except FileNotFoundError:
            raise DamagedCard(f"blob {self.path(sha256)} is missing") from None
        return True

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
        for sha256 in self:
            yield sha256, self.size(sha256)

    def remains(self, delete: bool) -> Iterator[tuple[str, int]]:  # noqa: ARG002 (they are in `partial`)
        yield from ()

    def __iter__(self) -> Iterator[str]:
        for folder in sorted(self.root.glob("??")):
            yield from sorted(path.name for path in folder.iterdir() if blobs.is_digest(path.name))


def _blocks(stream: BinaryIO, left: int | None) -> Iterator[bytes]:
    with stream:
        while block := stream.read(BUFFER if left is None else min(BUFFER, left)):
            yield block
            left = None if left is None else left - len(block)
