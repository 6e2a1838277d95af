"""What no version needs: files, snapshots, and remains of killed processes. Found, counted and deleted here."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kcard.faults import reach
from kcard.hub.disk import discard, remains
from kcard.hub.snapshots import Snapshots
from kcard.hub.store import BlobStore

if TYPE_CHECKING:
    from kcard.hub.catalogue import Catalogue

__all__ = ["Garbage", "collect"]


@dataclass(frozen=True)
class Garbage:
    """Something that no version needs. `size`: the bytes that deleting it frees."""

    what: Literal["file", "snapshot", "remains"]
    path: Path
    size: int


def collect(
    catalogue: "Catalogue", blobs: BlobStore, snapshots: Snapshots, *, dry_run: bool = False
) -> list[Garbage]:
    """Delete what no version needs and return what it was; with `dry_run` only return it.

    Nobody publishes meanwhile. What a living process is writing just now is left alone.
    """
    with catalogue.referenced() as (files, versions):
        found = [Garbage("file", blobs.path(x), _freed(blobs.path(x))) for x in blobs if x not in files]
        for folder in snapshots.strangers(versions):
            found.append(Garbage("snapshot", folder, _freed(folder)))
        for garbage in () if dry_run else found:
            if garbage.what == "file":
                blobs.delete(garbage.path.name)
                reach("collect.file")
            else:
                snapshots.delete(garbage.path)
                reach("collect.snapshot")
    return [*found, *_remains(blobs.partial, dry_run)]


def _remains(partial: Path, dry_run: bool) -> Iterator[Garbage]:
    for folder in remains(partial):
        yield Garbage("remains", folder, _freed(folder))
        if not dry_run:
            discard(folder)
            reach("collect.remains")


def _freed(path: Path) -> int:
    """Bytes that deleting a file or a folder frees; a file with a second name in a folder frees none there."""
    if path.is_file():
        return path.stat().st_size
    stats = [found.stat() for found in path.rglob("*") if found.is_file()]
    return sum(stat.st_size for stat in stats if stat.st_nlink == 1)
