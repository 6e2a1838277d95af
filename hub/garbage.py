"""Garbage collection: unreferenced files and snapshots, and what killed processes left behind.

It is safe while others publish. They store a blob first, and add a reference in a transaction that checks that the blob
still exists; here a blob is deleted in a transaction that checks that nothing refers to it. Transactions are short,
since they block other writers.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from sqlalchemy import ColumnElement, delete, select, union
from sqlalchemy.orm import Session

from kcard.batching import batched
from kcard.hub.db.models import Holding, Upload, Version
from kcard.hub.db.session import Database
from kcard.hub.snapshots import Snapshots
from kcard.hub.storage import Blobs, abandoned_folders, discard
from kcard.hub.uploads import Parts, delete_stale_verdicts

UPLOAD_LIFETIME = timedelta(hours=24)  # without a commit: clients may resume the next day
# Digests that one transaction looks up, or deletes.
READ_BATCH = 500
DELETE_BATCH = 100


def find_referenced(session: Session, candidates: Collection[str]) -> set[str]:
    """Return the candidates (at most READ_BATCH digests) that repositories or unexpired uploads refer to."""
    rows = union(
        select(Holding.sha256).where(Holding.sha256.in_(candidates)),
        select(Upload.sha256).where(Upload.sha256.in_(candidates), ~_is_expired()),
    )
    return set(session.scalars(rows))


def delete_unreferenced(database: Database, blobs: Blobs, candidates: Sequence[str]) -> None:
    """Delete the blobs among the candidates that nothing refers to any more."""
    for batch in batched(candidates, DELETE_BATCH):
        # Whoever is about to refer to one of them waits for this transaction, and then stores the blob again.
        with database.write() as session:
            in_use = find_referenced(session, batch)
            blobs.delete(*(sha256 for sha256 in batch if sha256 not in in_use))


def _is_expired() -> ColumnElement[bool]:
    return Upload.at < datetime.now(UTC) - UPLOAD_LIFETIME


@dataclass(frozen=True)
class Garbage:
    """A file or folder to delete, which frees `size` bytes."""

    what: Literal["file", "snapshot", "remains"]
    where: str
    size: int


def collect_garbage(
    database: Database, blobs: Blobs, snapshots: Snapshots, *, dry_run: bool = False
) -> list[Garbage]:
    """Delete garbage and return it; with `dry_run`, only return it.

    Files that a live process is writing are kept; so are uploads, for UPLOAD_LIFETIME.
    """
    garbage: list[Garbage] = []

    # Snapshots without a version. They come first: their files are hard links to blobs.
    folders = {folder.name: folder for folder in snapshots}
    freed = {name: _freed_size(folder) for name, folder in folders.items()}

    def find_existing(session: Session, candidates: Collection[str]) -> set[str]:
        return set(session.scalars(select(Version.sha256).where(Version.sha256.in_(candidates))))

    def delete_snapshots(unneeded: Sequence[str]) -> None:
        for name in unneeded:
            snapshots.delete(folders[name])

    delete_all = None if dry_run else delete_snapshots
    for name in _delete_unneeded(database, folders, find_existing, delete_all):
        garbage.append(Garbage("snapshot", str(folders[name]), freed[name]))

    # Files that neither repositories nor unexpired uploads refer to.
    if not dry_run:
        with database.write() as session:
            session.execute(delete(Upload).where(_is_expired()))
            delete_stale_verdicts(session)
    delete_blobs = None if dry_run else lambda unneeded: blobs.delete(*unneeded)
    for listed in batched(blobs.sizes(), READ_BATCH):
        sizes = dict(listed)
        for sha256 in _delete_unneeded(database, sizes, find_referenced, delete_blobs):
            garbage.append(Garbage("file", blobs.where(sha256), sizes[sha256]))

    # What killed processes left behind on this machine and in the store.
    for folder in abandoned_folders(blobs.partial):
        garbage.append(Garbage("remains", str(folder), _freed_size(folder)))
        if not dry_run:
            discard(folder)
    for where, size in blobs.remains(delete=not dry_run):
        garbage.append(Garbage("remains", where, size))

    # Parts of uploads that clients abandoned.
    parts = Parts(blobs.partial.parent / "parts", database)
    for path, size in parts.collect(dry_run=dry_run):
        garbage.append(Garbage("remains", str(path), size))
    return garbage


def _delete_unneeded(
    database: Database,
    candidates: Iterable[str],
    find_needed: Callable[[Session, Sequence[str]], set[str]],
    delete: Callable[[Sequence[str]], None] | None,
) -> Iterator[str]:
    """Yield the candidates that the database does not need, after deleting them unless `delete` is None."""
    for batch in batched(candidates, READ_BATCH):
        with database.read() as session:
            needed = find_needed(session, batch)
            unneeded = [candidate for candidate in batch if candidate not in needed]
        if delete is None:
            yield from unneeded
            continue
        for few in batched(unneeded, DELETE_BATCH):
            with database.write() as session:
                needed = find_needed(session, few)  # again: one of them may be needed by now
                still_unneeded = [candidate for candidate in few if candidate not in needed]
                delete(still_unneeded)
            yield from still_unneeded


def _freed_size(path: Path) -> int:
    """Return the bytes that deleting a file or a folder frees. Files of a folder with other hard links count 0, and so
    does what another process has deleted meanwhile."""
    try:
        if path.is_file():
            return path.stat().st_size
        stats = [file.stat() for file in path.rglob("*") if file.is_file()]
    except FileNotFoundError:
        return 0
    return sum(stat.st_size for stat in stats if stat.st_nlink == 1)
