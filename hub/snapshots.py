"""Versions as folders again: snapshots inside the hub that models are loaded from, and copies outside it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kcard.errors import DamagedCard, UsageError
from kcard.faults import reach
from kcard.hub.repositories.versions import Version, damaged
from kcard.hub.store.blobs import Blobs, unlike
from kcard.hub.store.disk import beside, copy_hashing, discard, partial_folder, sync_folder
from kcard.manifest import file_digest

__all__ = ["Snapshots"]


@dataclass(frozen=True)
class Snapshots:
    """Snapshot folders at `root`/<card>/<sha256 of the version>, hard links to blobs where possible.

    The folder of a shared hub's card namespace/name is namespace--name.
    """

    root: Path
    blobs: Blobs

    def folder(self, version: Version) -> Path:
        """The version's folder, every byte verified; one that is not as published is made anew.

        Raises DamagedCard, which names the file, where a blob is missing or damaged.
        """
        target = self.root / version.name.replace("/", "--") / version.sha256
        if not _intact(target, version):
            with partial_folder(self.blobs.partial) as scratch:
                self._link_all(version, scratch / "new")
                reach("snapshot.linked")
                if target.exists() and not _intact(target, version):
                    target.rename(scratch / "old")
                    reach("snapshot.aside")
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    (scratch / "new").rename(target)
                except OSError:  # another process may just have put the same folder there
                    if not _intact(target, version):
                        raise
                reach("snapshot.placed")
        return target

    def _link_all(self, version: Version, folder: Path) -> None:
        for path, sha256 in version.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self.blobs.holds(sha256):
                raise damaged(version, path, "missing")
            try:
                self.blobs.lay(sha256, target)
            except DamagedCard as error:
                raise damaged(version, path, str(error)) from None

    def copy(self, version: Version, destination: Path) -> Path:
        """Copy the version's files to a new folder, verified on the way; it appears whole or not at all.

        Raises UsageError where the destination is a file or a folder that is not empty.
        """
        destination = destination.expanduser().absolute()
        if destination.exists() and not (destination.is_dir() and _empty(destination)):
            raise UsageError(f"{destination} exists and is not an empty folder: name a new folder")
        with beside(destination) as scratch:
            new = scratch / "new"
            for path, sha256 in version.files.items():
                self._copy_one(version, path, sha256, new / path)
                reach("pull.copied")
            if destination.is_dir():
                destination.rmdir()
                reach("pull.cleared")
            new.rename(destination)
        sync_folder(destination.parent)
        reach("pull.placed")
        return destination

    def _copy_one(self, version: Version, path: str, sha256: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not self.blobs.holds(sha256):
            raise damaged(version, path, "missing")
        with self.blobs.open(sha256) as stream:
            found, _ = copy_hashing(stream, target)
        if found != sha256:
            raise damaged(version, path, unlike(found, sha256))

    def __iter__(self) -> Iterator[Path]:
        """Every snapshot there is; its name is the version's sha256."""
        yield from sorted(self.root.glob("*/*"))

    def delete(self, folder: Path) -> None:
        """Delete a snapshot."""
        discard(folder)
        with contextlib.suppress(OSError):  # the card has other snapshots
            folder.parent.rmdir()


def _intact(folder: Path, version: Version) -> bool:
    expected = version.files
    try:
        found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}
        return found == set(expected) and all(file_digest(folder / p) == sha for p, sha in expected.items())
    except FileNotFoundError:
        return False


def _empty(folder: Path) -> bool:
    return next(folder.iterdir(), None) is None
