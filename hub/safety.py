"""What the hub refuses to store: pickled weights, which run code when they are loaded, and unsafe paths."""

import json
import re
import zipfile
from pathlib import Path, PurePosixPath

from kcard.errors import CardError
from kcard.manifest import MANIFEST, Manifest

__all__ = ["check_paths", "refuse_pickles"]

PICKLED = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
# A pickle of protocol 2 or later opens with PROTO and its version; no UTF-8 text can begin so.
PICKLE = re.compile(rb"\x80[\x02-\x05]")
SHA256 = re.compile(r"[0-9a-f]{64}")
REMEDY = "save the weights as .safetensors (`save_pretrained` does) and seal the card again"


def refuse_pickles(folder: Path, manifest: Manifest) -> None:
    """Raise CardError for a file of the manifest that is, by name or by content, a pickle."""
    for path in manifest.files:
        if PurePosixPath(path).suffix.lower() in PICKLED:
            raise CardError(
                f"card {manifest.name!r}: {path} is named like pickled weights, which can run code: {REMEDY}"
            )
        if _is_pickle(folder / path):
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


def check_paths(manifest: Manifest) -> None:
    """Raise CardError unless every file is named by a plain relative path and a sha256.

    A contributed manifest decides where files are written, so "../" must not get past this point.
    """
    for path, sha256 in manifest.files.items():
        parts = path.split("/")
        if path == MANIFEST or "\\" in path or ":" in path or any(part in {"", ".", ".."} for part in parts):
            raise CardError(
                f"card {manifest.name!r}: file path {path!r} is not a plain path inside the card's folder"
            )
        if not isinstance(sha256, str) or not SHA256.fullmatch(sha256):
            raise CardError(
                f"card {manifest.name!r}: {path} has no sha256 in the manifest but {sha256!r}: seal it again"
            )
