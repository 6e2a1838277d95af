"""Versions as folders: snapshots inside the hub, from which models are loaded, and copies outside it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from kcard.errors import DamagedCard
from kcard.hub.db.models import Version
from kcard.hub.storage import Blobs, create_folder, discard, partial_folder
from kcard.manifest import file_digest


def damaged_file(version: Version, path: str, fault: str) -> DamagedCard:
    """Return the error for a file of a version that is missing or damaged, as `fault` says."""
    return DamagedCard(
        f"card {version.reference}: {path} is {fault} in the hub: `kcard verify {version.name}` lists all damage; "
        f"publish the card's folder again, or pull it again"
    )


@dataclass(frozen=True)
class Snapshots:
    """Snapshots at `root`/<card>/<sha256 of the version>, with hard links to blobs if possible.

    The folder of the card namespace/name is namespace--name.
    """

    root: Path
    blobs: Blobs

    def folder(self, version: Version) -> Path:
        """Return the version's folder, verified, and rebuilt if it was modified. Raises DamagedCard."""
        target = self.root / version.name.replace("/", "--") / version.sha256
        if not _is_intact(target, version):
            with partial_folder(self.blobs.partial) as scratch:
                for path, sha256 in version.files.items():
                    file = scratch / "new" / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    if not self.blobs.holds(sha256):
                        raise damaged_file(version, path, "missing")
                    try:
                        self.blobs.materialize(sha256, file)
                    except DamagedCard as error:
                        raise damaged_file(version, path, str(error)) from None
                if target.exists() and not _is_intact(target, version):
                    target.rename(scratch / "old")
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    (scratch / "new").rename(target)
                except OSError:  # another process may have created the same folder
                    if not _is_intact(target, version):
                        raise
        return target

    def copy(self, version: Version, destination: Path) -> Path:
        """Copy the version's files to a new folder, verified, completely or not at all.

        Raises UsageError if the destination is a file or a folder that is not empty.
        """

        def opened(path: str) -> BinaryIO:
            sha256 = version.files[path]
            if not self.blobs.holds(sha256):
                raise damaged_file(version, path, "missing")
            return self.blobs.open(sha256)

        return create_folder(destination, version.files, opened, partial(damaged_file, version))

    def __iter__(self) -> Iterator[Path]:
        """Yield all snapshots, named by their versions' sha256."""
        yield from sorted(self.root.glob("*/*"))

    def delete(self, folder: Path) -> None:
        """Delete a snapshot."""
        discard(folder)
        with contextlib.suppress(OSError):  # the card has other snapshots
            folder.parent.rmdir()


def _is_intact(folder: Path, version: Version) -> bool:
    expected = version.files
    actual = {}
    try:
        for path in folder.rglob("*"):
            if not path.is_dir():
                actual[path.relative_to(folder).as_posix()] = file_digest(path)
    except FileNotFoundError:
        return False
    return actual == expected
