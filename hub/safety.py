"""What the hub refuses to store: pickled weights, which run code when they are loaded."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from kcard.errors import CardError
from kcard.manifest import Manifest

__all__ = ["refuse_pickles"]

PICKLED = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
# A pickle of protocol 2 or later opens with PROTO and its version; no UTF-8 text can begin so.
PICKLE = re.compile(rb"\x80[\x02-\x05]")
REMEDY = "save the weights as .safetensors (`save_pretrained` does) and seal the card again"


def refuse_pickles(manifest: Manifest, locate: Callable[[str], Path]) -> None:
    """Raise CardError for a file of the manifest that is, by name or by content, a pickle.

    `locate` says where the file of a path in the manifest lies.
    """
    for path in manifest.files:
        if PurePosixPath(path).suffix.lower() in PICKLED:
            raise CardError(
                f"card {manifest.name!r}: {path} is named like pickled weights, which can run code: {REMEDY}"
            )
        if _is_pickle(locate(path)):
            raise CardError(f"card {manifest.name!r}: {path} holds a pickle, which can run code: {REMEDY}")


def _is_pickle(path: Path) -> bool:
    with path.open("rb") as stream:
        start = stream.read(9)
    if PICKLE.match(start):
        # Safetensors open with the length of their header, which may happen to have the same bytes.
        return not _is_safetensors(path)
    if start.startswith(b"PK"):  # torch.save writes a zip around data.pkl
        return zipfile.is_zipfile(path) and _zips_pickle(path)
    return False


def _zips_pickle(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.lower().endswith(".pkl") for name in archive.namelist())


def _is_safetensors(path: Path) -> bool:
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length > path.stat().st_size - 8:
            return False
        try:
            return isinstance(json.loads(stream.read(length)), dict)
        except ValueError:
            return False
