"""A fetched card becomes a folder of the user's own: whole or not at all."""

import hashlib
from pathlib import Path

from kcard.errors import DamagedCard, UsageError
from kcard.hub.store.disk import beside, copy_hashing, sync_folder
from kcard.manifest import MANIFEST, Manifest

__all__ = ["check_new", "place"]


def check_new(destination: Path) -> Path:
    """The absolute path of a folder that can be made; UsageError where something is there already."""
    target = destination.expanduser().absolute()
    if target.exists() and not (target.is_dir() and next(target.iterdir(), None) is None):
        raise UsageError(f"{target} exists and is not an empty folder: name a new folder")
    return target


def place(folder: Path, destination: Path) -> Path:
    """Copy the files that the manifest in `folder` names, and the manifest, to a new folder, verified on the way.

    Raises UsageError where the destination exists, DamagedCard where a file is not as its manifest says.
    """
    target = check_new(destination)
    text = (folder / MANIFEST).read_bytes()
    manifest = Manifest.from_json(text.decode())
    with beside(target) as scratch:
        new = scratch / "new"
        for path, sha256 in {**manifest.files, MANIFEST: hashlib.sha256(text).hexdigest()}.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            with (folder / path).open("rb") as stream:
                found, _ = copy_hashing(stream, new / path)
            if found != sha256:
                raise DamagedCard(
                    f"{path} changed while it was copied: sha256 {found[:12]}…, not {sha256[:12]}…"
                )
        if target.is_dir():
            target.rmdir()
        new.rename(target)
    sync_folder(target.parent)
    return target
