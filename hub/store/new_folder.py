"""Creates folders of verified files, completely or not at all."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from kcard.errors import DamagedCard, UsageError
from kcard.hub.store.blobs import unlike
from kcard.hub.store.disk import beside, copy_hashing, sync_folder

__all__ = ["check_new", "create"]


def check_new(destination: Path) -> Path:
    """The absolute path of a new or empty folder. Raises UsageError for any other, and for a symbolic link."""
    target = destination.expanduser().absolute()
    if target.is_symlink():
        raise UsageError(f"{target} is a symbolic link: choose a new folder")
    if target.exists() and not (target.is_dir() and next(target.iterdir(), None) is None):
        raise UsageError(f"{target} exists and is not an empty folder: choose a new folder")
    return target


def create(
    destination: Path,
    files: Mapping[str, str],
    opened: Callable[[str], BinaryIO],
    damaged: Callable[[str, str], DamagedCard],
) -> Path:
    """Create a folder of files (sha256 by path) and return its absolute path.

    `opened` opens the file of a path; `damaged` makes the error for a path and what is wrong with its file. Raises
    UsageError if the destination is a file or a folder that is not empty.
    """
    target = check_new(destination)
    with beside(target) as scratch:
        new = scratch / "new"
        for path, sha256 in files.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            with opened(path) as stream:
                found, _ = copy_hashing(stream, new / path)
            if found != sha256:
                raise damaged(path, unlike(found, sha256))
        if target.is_dir():
            target.rmdir()
        new.rename(target)
    sync_folder(target.parent)
    return target
