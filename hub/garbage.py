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
    """A file or folder to delete, which frees `size` bytes."""

    what: Literal["file", "snapshot", "remains"]
    where: str
    size: int


def collect(
    database: "Database", blobs: Blobs, snapshots: Snapshots, *, dry_run: bool = False
) -> list[Garbage]:
    """Delete garbage and return it; with `dry_run` only return it.

    Files that a live process is writing are kept, and uploads are kept for a day.
    """
    # Snapshots first: their files are hard links to blobs.
    garbage = [*_collect_snapshots(database, snapshots, dry_run), *_collect_files(database, blobs, dry_run)]
    # Remains of killed processes, on this machine and in the store.
    for folder in remains(blobs.partial):
        garbage.append(Garbage("remains", str(folder), _freed_size(folder)))
        if not dry_run:
            discard(folder)
    garbage += [Garbage("remains", where, size) for where, size in blobs.remains(delete=not dry_run)]
    # Abandoned uploads of clients.
    from kcard.hub.uploads import Parts

    parts = Parts(blobs.partial.parent / "parts", database)
    garbage += [Garbage("remains", str(path), size) for path, size in parts.collect(dry_run=dry_run)]
    return garbage


def _collect_snapshots(database: "Database", snapshots: Snapshots, dry_run: bool) -> Iterator[Garbage]:
    from kcard.hub.trees import existing_versions

    folders = {folder.name: folder for folder in snapshots}
    freed = {name: _freed_size(folder) for name, folder in folders.items()}

    def delete(gone: Sequence[str]) -> None:
        for name in gone:
            snapshots.delete(folders[name])

    for name in _unneeded(database, folders, existing_versions, None if dry_run else delete):
        yield Garbage("snapshot", str(folders[name]), freed[name])


def _collect_files(database: "Database", blobs: Blobs, dry_run: bool) -> Iterator[Garbage]:
    from kcard.hub import verdicts
    from kcard.hub.trees import expire, referenced

    if not dry_run:
        with database.write() as connection:
            expire(connection)
            verdicts.forget(connection)
    delete = None if dry_run else lambda gone: blobs.delete(*gone)
    for listed in _batches(blobs.sizes(), LOOKED_AT):
        sizes = dict(listed)
        for sha256 in _unneeded(database, sizes, referenced, delete):
            yield Garbage("file", blobs.where(sha256), sizes[sha256])


def _unneeded(
    database: "Database",
    candidates: Iterable[str],
    needed: "Callable[[Connection, Sequence[str]], set[str]]",
    delete: Callable[[Sequence[str]], None] | None,
) -> Iterator[str]:
    """Yield the candidates that the database does not need, after deleting them."""
    for batch in _batches(candidates, LOOKED_AT):
        with database.read() as connection:
            in_use = needed(connection, batch)
            unneeded = [candidate for candidate in batch if candidate not in in_use]
        for few in _batches(unneeded, DELETED):
            if delete is None:
                yield from few
                continue
            with database.write() as connection:  # it may be needed by now
                in_use = needed(connection, few)
                gone = [candidate for candidate in few if candidate not in in_use]
                delete(gone)
            yield from gone


def _freed_size(path: Path) -> int:
    """Return the bytes that deleting a file or a folder frees; files with other hard links free none."""
    if path.is_file():
        return path.stat().st_size
    stats = [file.stat() for file in path.rglob("*") if file.is_file()]
    return sum(stat.st_size for stat in stats if stat.st_nlink == 1)


def _batches(items: Iterable[T], count: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(islice(iterator, count)):
        yield batch
