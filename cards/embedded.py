"""The base that embedded LoRA cards share: a small model that lies in the package (weights/base/README.md)."""

from pathlib import Path

__all__ = ["BASE", "FOLDER", "base_folder"]

BASE = "embedded"
FOLDER = Path(__file__).resolve().parent / "weights" / "base"


def base_folder(name: str) -> str:
    """Where a manifest's base is loaded from: the package's folder for BASE, any other name as it is."""
    return str(FOLDER) if name == BASE else name
