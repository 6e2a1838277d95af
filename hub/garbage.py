"""Garbage collection: unreferenced files and snapshots, and remains of killed processes.

It is safe while others publish: they store a blob first, then add the reference in a transaction that checks that the
blob still exists. Here a blob is deleted in a transaction that checks that nothing refers to it. Transactions are
short, since they block other writers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from kcard.hub.selection import Snapshots
from kcard.hub.storage import Blobs, discard, remains

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from kcard.hub.db.session import Database

__all__ = ["Garbage", "collect"]

T = TypeVar("T")
LOOKED_AT = 500
DELETED = 100


@dataclass(frozen=True)
class Garbage:
    """Something to delete. `size`: the bytes that this frees."""

    what: Literal["file", "snapshot", "remains"]
    where: str
    size: int


def collect(
    database: "Database", blobs: Blobs, snapshots: Snapshots, *, dry_run: bool = False
) -> list[Garbage]:
    """Delete garbage and return it; with `dry_run` only return it.

    Files that a live process is writing are kept, and uploads are kept for a day.
    """
    return [
        *_snapshots(database, snapshots, dry_run),  # first: their files are hard links to blobs
        *_files(database, blobs, dry_run),
        *_remains(blobs, dry_run),
        *_half_sent(database, blobs, dry_run),
    ]


def _snapshots(database: "Database", snapshots: Snapshots, dry_run: bool) -> Iterator[Garbage]:
    from kcard.hub.trees import existing

    found = {folder.name: folder for folder in snapshots}
    freed = {name: _freed(folder) for name, folder in found.items()}

    def delete(gone: Sequence[str]) -> None:
        for name in gone:
            snapshots.delete(found[name])

    for name in _unneeded(database, found, existing, None if dry_run else delete):
        yield Garbage("snapshot", str(found[name]), freed[name])


def _files(database: "Database", blobs: Blobs, dry_run: bool) -> Iterator[Garbage]:
    from kcard.hub import verdicts
    from kcard.hub.trees import expire, named

    if not dry_run:
        with database.write() as connection:
            expire(connection)
            verdicts.forget(connection)
    delete = None if dry_run else lambda gone: blobs.delete(*gone)
    for listed in _batches(blobs.sizes(), LOOKED_AT):
        sizes = dict(listed)
        for sha256 in _unneeded(database, sizes, named, delete):
            yield Garbage("file", blobs.where(sha256), sizes[sha256])


def _unneeded(
    database: "Database",
    candidates: Iterable[str],
    needed: "Callable[[Connection, Sequence[str]], set[str]]",
    delete: Callable[[Sequence[str]], None] | None,
) -> Iterator[str]:
    """The candidates that the database does not need, after deleting them."""
    for batch in _batches(candidates, LOOKED_AT):
        with database.read() as connection:
            kept = needed(connection, batch)
            found = [candidate for candidate in batch if candidate not in kept]
        for few in _batches(found, DELETED):
            if delete is None:
                yield from few
                continue
            with database.write() as connection:  # it may be needed by now
                kept = needed(connection, few)
                gone = [candidate for candidate in few if candidate not in kept]
                delete(gone)
            yield from gone


def _remains(blobs: Blobs, dry_run: bool) -> Iterator[Garbage]:
    for folder in remains(blobs.partial):
        yield Garbage("remains", str(folder), _freed(folder))
        if not dry_run:
            discard(folder)
    yield from (Garbage("remains", where, size) for where, size in blobs.remains(delete=not dry_run))


def _half_sent(database: "Database", blobs: Blobs, dry_run: bool) -> Iterator[Garbage]:
    """Abandoned uploads of clients."""
    from kcard.hub.uploads import Parts

    for path, size in Parts(blobs.partial.parent / "parts", database).collect(dry_run=dry_run):
        yield Garbage("remains", str(path), size)


def _freed(path: Path) -> int:
    """Bytes that deleting a file or a folder frees; files with other hard links free none."""
    if path.is_file():
        return path.stat().st_size
    stats = [found.stat() for found in path.rglob("*") if found.is_file()]
    return sum(stat.st_size for stat in stats if stat.st_nlink == 1)


def _batches(items: Iterable[T], count: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, count)):
        yield batch
