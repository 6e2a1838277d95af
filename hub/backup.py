"""Writes a whole hub to one tar file, from any database and store. restore.py reads it.

SHA256SUMS         the sha256 of every file below, for `sha256sum --check`
hub/hub.db         the database, as SQLite, with accounts and the digests of their tokens
hub/blobs/ab/ab…   every file of every commit; no uncommitted uploads
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from kcard.errors import DamagedCard, HubError, UsageError
from kcard.hub.records.copying import copy_rows, numbers
from kcard.hub.records.database import Database
from kcard.hub.repositories.blob_references import kept, named
from kcard.hub.store.blobs import Blobs
from kcard.hub.store.disk import Readable, beside, discard, partial_folder, private, sync_folder
from kcard.manifest import file_digest

__all__ = ["BLOBS", "DATABASE", "SUMS", "Backup", "Counted", "Report", "member", "save"]

Report: TypeAlias = Callable[[int], None]

SUMS = "SHA256SUMS"
DATABASE = "hub/hub.db"
BLOBS = "hub/blobs"
ATTEMPTS = 5


@dataclass(frozen=True)
class Backup:
    """A backup, and what it has: published versions of cards, repositories, and `blobs` of `size` bytes."""

    path: Path
    cards: int
    versions: int
    repositories: int
    blobs: int
    size: int

    def __fspath__(self) -> str:
        return str(self.path)


class Counted:
    """A stream that hashes what is read from it and reports its progress."""

    def __init__(self, stream: Readable, before: int, report: Report | None) -> None:
        self._stream, self._report = stream, report
        self.done = before
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        self.digest.update(block)
        self.done += len(block)
        if self._report is not None:
            self._report(self.done)
        return block


def save(path: Path, database: Database, blobs: Blobs, report: Report | None) -> Backup:
    """See Hub.backup."""
    target = path.expanduser().absolute()
    if target.exists():
        raise UsageError(f"{target} already exists: choose a new file")
    with partial_folder(blobs.partial) as held, beside(target) as scratch:
        for attempt in range(ATTEMPTS):
            try:
                counts = _save(held / str(attempt), scratch / f"backup{attempt}", database, blobs, report)
                break
            except _Removed:
                discard(held / str(attempt))
                (scratch / f"backup{attempt}").unlink(missing_ok=True)
        else:
            raise HubError("cards were removed during the backup: try again when nobody removes cards")
        (scratch / f"backup{attempt}").rename(target)
        sync_folder(target.parent)
    return Backup(target, **counts)


class _Removed(Exception):
    """A file was removed from the hub, with its versions, since the copy of the database."""


def _save(
    held: Path, target: Path, database: Database, blobs: Blobs, report: Report | None
) -> dict[str, int]:
    """Write the backup; returns the counts of its contents. Raises _Removed if it must start again."""
    found, counts = _hold(held, database, blobs)
    sizes = {DATABASE: (held / DATABASE).stat().st_size} | {member(sha): size for sha, size in found.items()}
    digests = {DATABASE: file_digest(held / DATABASE)} | {member(sha256): sha256 for sha256 in found}
    with open(target, "xb", opener=private) as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            _list(tar, digests)
            done = 0
            for name, sha256 in digests.items():
                with _opened(held / name, sha256, database, blobs) as source:
                    done = _add(tar, name, sizes[name], sha256, Counted(source, done, report))
        stream.flush()
        os.fsync(stream.fileno())
    return counts | {"blobs": len(found), "size": sum(found.values())}


def _hold(held: Path, database: Database, blobs: Blobs) -> tuple[dict[str, int], dict[str, int]]:
    """Copy the database to a folder and hard-link its blobs there, if the store can.

    Returns the sizes of the blobs by sha256, and the numbers of rows.
    """
    (held / "hub").mkdir(parents=True)
    copy = Database(held / DATABASE)
    with database.read() as source:
        with copy.write() as target:
            copy_rows(source, target)
        found, counts = dict(sorted(kept(source).items())), numbers(source)
    copy.close_log()
    for sha256 in found:
        second = held / member(sha256)
        second.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not blobs.hard_link(sha256, second):
                break
        except DamagedCard:
            _missing(sha256, database)
    return found, counts


def _missing(sha256: str, database: Database) -> NoReturn:
    with database.read() as connection:
        if not named(connection, [sha256]):
            raise _Removed
    raise DamagedCard(f"blob {sha256[:12]}… is missing: `kcard verify` lists the affected cards")


@contextmanager
def _opened(second: Path, sha256: str, database: Database, blobs: Blobs) -> Iterator[Readable]:
    """A file of the backup, from its hard link or from the store."""
    if second.exists():
        with second.open("rb") as stream:
            yield stream
        return
    try:
        stored = blobs.open(sha256)
    except DamagedCard:
        _missing(sha256, database)
    with stored:
        yield stored


def member(sha256: str) -> str:
    """The name of a blob in the backup."""
    return f"{BLOBS}/{sha256[:2]}/{sha256}"


def _list(tar: tarfile.TarFile, digests: Mapping[str, str]) -> None:
    sums = "".join(f"{sha256}  {name}\n" for name, sha256 in digests.items()).encode()
    info = tarfile.TarInfo(SUMS)
    info.size, info.mode = len(sums), 0o400
    tar.addfile(info, io.BytesIO(sums))


def _add(tar: tarfile.TarFile, name: str, size: int, sha256: str, counted: Counted) -> int:
    """Add a file; returns the bytes done so far."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o400
    try:
        tar.addfile(info, counted)
    except OSError as error:
        if str(error) != "unexpected end of data":  # tarfile's error for a truncated file
            raise
    if counted.digest.hexdigest() != sha256:
        raise DamagedCard(f"{name} is damaged: `kcard verify` lists the affected cards")
    return counted.done
