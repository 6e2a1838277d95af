"""Multipart uploads of large files; each request may reach another worker.

Parts are complete files, joined into a new file that is then hashed: sending a part again can't change a checked file.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from kcard.hub.refusals import Invalid
from kcard.hub.store.disk import BUFFER, discard

__all__ = ["Parts"]

STALE_SECONDS = 24 * 3600


class Parts:
    """The uploaded parts, at `root`/ACCOUNT-SHA256/NUMBER."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, account_id: int, sha256: str, number: int, part: Path) -> None:
        """Store a part, replacing an earlier one. `part` is moved."""
        folder = self._folder(account_id, sha256)
        folder.mkdir(parents=True, exist_ok=True)
        part.replace(folder / str(number))

    def join(self, account_id: int, sha256: str, count: int, target: Path) -> int:
        """Join parts 1 to `count` into a new file, flush it, and delete them. Returns the size in bytes.

        Raises Invalid if a part is missing, or if the file has another sha256 and must be sent again.
        """
        folder = self._folder(account_id, sha256)
        digest = hashlib.sha256()
        try:
            with target.open("xb") as whole:
                for number in range(1, count + 1):
                    for block in _blocks(folder / str(number)):
                        digest.update(block)
                        whole.write(block)
                whole.flush()
                os.fsync(whole.fileno())
                size = whole.tell()
        except FileNotFoundError:
            raise Invalid(f"part {number} of {sha256[:12]}… is missing: send it again") from None
        discard(folder)
        if digest.hexdigest() != sha256:
            raise Invalid(
                f"the parts have sha256 {digest.hexdigest()[:12]}…, expected {sha256[:12]}…: send them again"
            )
        return size

    def size(self, account_id: int, *, but: tuple[str, int]) -> int:
        """Bytes of an account's parts, except one part of one file, which is about to be replaced."""
        spared = self._folder(account_id, but[0]) / str(but[1])
        return sum(_size(path) for path in self._root.glob(f"{account_id}-*/*") if path != spared)

    def collect(self, *, dry_run: bool = False) -> list[tuple[Path, int]]:
        """Delete the parts of files without uploads for a day; returns paths and sizes."""
        before = time.time() - STALE_SECONDS
        folders = self._root.iterdir() if self._root.is_dir() else ()
        old = [folder for folder in folders if folder.stat().st_mtime < before]
        found = [(folder, sum(_size(part) for part in folder.iterdir())) for folder in old]
        if not dry_run:
            for folder in old:
                discard(folder)
        return found

    def _folder(self, account_id: int, sha256: str) -> Path:
        return self._root / f"{account_id}-{sha256}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # joined just now
        return 0


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(BUFFER):
            yield block
