"""Multipart uploads of large files; each request may reach another worker.

Parts are complete files, joined into a new file that is then hashed: sending a part again can't change a checked file.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import delete, update

from kcard.hub.records.database import Database
from kcard.hub.records.upload_tables import reservations
from kcard.hub.refusals import Conflict, Invalid
from kcard.hub.store.disk import BUFFER, discard, sole_use

__all__ = ["Parts"]

STALE_SECONDS = 24 * 3600


class Parts:
    """The uploaded parts, at `root`/UPLOAD/NUMBER. An upload's name is of one account, repository and file."""

    def __init__(self, root: Path, database: Database) -> None:
        self._root, self._database = root, database

    def drop(self, upload: str, number: int) -> None:
        """Delete a part, if it is there, before it is sent again."""
        with self._database.write() as connection:
            (self._root / upload / str(number)).unlink(missing_ok=True)
            here = (reservations.c.upload == upload, reservations.c.number == number)
            connection.execute(delete(reservations).where(*here))

    def put(self, upload: str, number: int, part: Path, reservation: int | None = None) -> None:
        """Store a part, which is moved. Its reservation lasts until the file is complete.

        Raises Conflict if another request has stored it meanwhile, or the reservation has expired.
        """
        path = self._root / upload / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._database.write() as connection:
            kept = True
            if reservation is not None:
                values = {"upload": upload, "number": number, "expires": None}
                here = reservations.c.id == reservation
                kept = bool(connection.execute(update(reservations).where(here).values(values)).rowcount)
            if path.exists() or not kept:
                raise Conflict(f"part {number} is being sent by another request: send it again")
            part.replace(path)

    def join(self, upload: str, count: int, sha256: str, target: Path) -> int:
        """Join parts 1 to `count` into a new file and flush it. Returns the size in bytes. `discard` deletes them.

        Raises Invalid if a part is missing, or if the file has another sha256 and must be sent again; Conflict if
        another request joins them.
        """
        digest, folder = hashlib.sha256(), self._root / upload
        with sole_use(folder) as alone:
            if not alone and folder.exists():
                raise Conflict(f"the parts of {sha256[:12]}… are being joined: try again later")
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
        if digest.hexdigest() != sha256:
            self.discard(upload)
            raise Invalid(
                f"the parts have sha256 {digest.hexdigest()[:12]}…, expected {sha256[:12]}…: send them again"
            )
        return size

    def discard(self, upload: str) -> None:
        """Delete the parts of an upload."""
        with self._database.write() as connection:
            discard(self._root / upload)
            connection.execute(delete(reservations).where(reservations.c.upload == upload))

    def collect(self, *, dry_run: bool = False) -> list[tuple[Path, int]]:
        """Delete the parts of files without uploads for a day; returns paths and sizes."""
        before = time.time() - STALE_SECONDS
        folders = self._root.iterdir() if self._root.is_dir() else ()
        old = [folder for folder in folders if folder.stat().st_mtime < before]
        found = [(folder, sum(_size(part) for part in folder.iterdir())) for folder in old]
        if not dry_run:
            for folder in old:
                self.discard(folder.name)
        return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # joined just now
        return 0


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(BUFFER):
            yield block
