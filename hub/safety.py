"""What the hub refuses to store: pickled weights, which run code when they are loaded."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import BinaryIO

from kcard.errors import CardError
from kcard.manifest import Manifest

__all__ = ["refuse_pickles"]

PICKLED = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
# A pickle of protocol 2 or later opens with PROTO and its version; no UTF-8 text can begin so.
PICKLE = re.compile(rb"\x80[\x02-\x05]")
REMEDY = "save the weights as .safetensors (`save_pretrained` does) and seal the card again"


def refuse_pickles(manifest: Manifest, opened: Callable[[str], BinaryIO]) -> None:
    """Raise CardError for a file of the manifest that is, by name or by content, a pickle.

    `opened` opens the file of a path in the manifest.
    """
    for path in manifest.files:
        if PurePosixPath(path).suffix.lower() in PICKLED:
            raise CardError(
                f"card {manifest.name!r}: {path} is named like pickled weights, which can run code: {REMEDY}"
            )
        with opened(path) as stream:
            pickled = _is_pickle(stream)
        if pickled:
            raise CardError(f"card {manifest.name!r}: {path} holds a pickle, which can run code: {REMEDY}")


def _is_pickle(stream: BinaryIO) -> bool:
    start = stream.read(9)
    if PICKLE.match(start):
        # Safetensors open with the length of their header, which may happen to have the same bytes.
        return not _is_safetensors(stream)
    if start.startswith(b"PK"):  # torch.save writes a zip around data.pkl
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
