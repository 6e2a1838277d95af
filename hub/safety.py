"""Refuses pickled weights, which can run code when loaded."""

import json
import zipfile
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import BinaryIO

from kcard.errors import CardError
from kcard.hub.checks.signatures import PICKLE
from kcard.manifest import Manifest

__all__ = ["refuse_pickles"]

PICKLED = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
REMEDY = "save the weights as .safetensors (`save_pretrained` does) and seal the card again"


def refuse_pickles(manifest: Manifest, opened: Callable[[str], BinaryIO]) -> None:
    """Raise CardError if a file of the manifest is a pickle, by name or content. `opened` opens the file of a path."""
    for path in manifest.files:
        if PurePosixPath(path).suffix.lower() in PICKLED:
            raise CardError(
                f"card {manifest.name!r}: {path} has the extension of pickled weights, which can run code: {REMEDY}"
            )
        with opened(path) as stream:
            pickled = _is_pickle(stream)
        if pickled:
            raise CardError(f"card {manifest.name!r}: {path} contains a pickle, which can run code: {REMEDY}")


def _is_pickle(stream: BinaryIO) -> bool:
    start = stream.read(9)
    if PICKLE.match(start):
        # Safetensors start with the length of their header, which may have the same bytes.
        return not _is_safetensors(stream)
    if start.startswith(b"PK"):  # torch.save writes a zip with data.pkl
        return zipfile.is_zipfile(stream) and _zips_pickle(stream)
    return False


def _zips_pickle(stream: BinaryIO) -> bool:
    with zipfile.ZipFile(stream) as archive:
        return any(name.lower().endswith(".pkl") for name in archive.namelist())


def _is_safetensors(stream: BinaryIO) -> bool:
    size = stream.seek(0, 2)
    stream.seek(0)
    length = int.from_bytes(stream.read(8), "little")
    if length > size - 8:
        return False
    try:
        return isinstance(json.loads(stream.read(length)), dict)
    except ValueError:
        return False
