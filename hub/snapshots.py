"""Versions as folders: snapshots inside the hub, from which models are loaded, and copies outside it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from kcard.errors import DamagedCard
from kcard.hub.repositories.versions import Version, damaged
from kcard.hub.store.blobs import Blobs
from kcard.hub.store.disk import discard, partial_folder
from kcard.hub.store.new_folder import create
from kcard.manifest import file_digest

__all__ = ["Snapshots"]


@dataclass(frozen=True)
class Snapshots:
    """Snapshots at `root`/<card>/<sha256 of the version>, with hard links to blobs if possible.

    The folder of the card namespace/name is namespace--name.
    """

    root: Path
    blobs: Blobs

    def folder(self, version: Version) -> Path:
        """The version's folder, verified, and rebuilt if it was modified. Raises DamagedCard."""
        target = self.root / version.name.replace("/", "--") / version.sha256
        if not _intact(target, version):
            with partial_folder(self.blobs.partial) as scratch:
                self._link_all(version, scratch / "new")
                if target.exists() and not _intact(target, version):
                    target.rename(scratch / "old")
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    (scratch / "new").rename(target)
                except OSError:  # another process may have created the same folder
                    if not _intact(target, version):
                        raise
        return target

    def _link_all(self, version: Version, folder: Path) -> None:
        for path, sha256 in version.files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self.blobs.holds(sha256):
                raise damaged(version, path, "missing")
            try:
                self.blobs.materialize(sha256, target)
            except DamagedCard as error:
                raise damaged(version, path, str(error)) from None

    def copy(self, version: Version, destination: Path) -> Path:
        """Copy the version's files to a new folder, verified, completely or not at all.

        Raises UsageError if the destination is a file or a folder that is not empty.
        """

        def opened(path: str) -> BinaryIO:
            sha256 = version.files[path]
            if not self.blobs.holds(sha256):
                raise damaged(version, path, "missing")
            return self.blobs.open(sha256)

        return create(destination, version.files, opened, partial(damaged, version))

    def __iter__(self) -> Iterator[Path]:
        """All snapshots; their names are the versions' sha256."""
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
