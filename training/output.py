"""Where a card is written: in a fresh folder beside its place, swapped in when it is whole.

A crash at any moment leaves the old card or the new one.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kcard.errors import CardError, UsageError
from kcard.files import locked
from kcard.manifest import MANIFEST, Manifest

__all__ = ["CHECKPOINT", "claim", "fresh", "mend"]

CHECKPOINT = ".checkpoint"


def claim(output: Path, name: str) -> None:
    """Refuse an output that is not ours to replace: it may be missing, empty, or hold a card of this name."""
    mend(output)
    if not output.exists():
        return
    if not output.is_dir():
        raise UsageError(f"output {output} is a file: name a folder")
    if (output / MANIFEST).exists():
        found = Manifest.read(output).name
        if found != name:
            raise UsageError(
                f"output {output} holds the card {found!r}, not {name!r}: choose another folder or that card"
            )
        return
    strange = sorted(p.name for p in output.iterdir() if p.name != CHECKPOINT)
    if strange:
        raise UsageError(f"output {output} holds {strange[0]!r} but no card: choose a new or empty folder")


def mend(output: Path) -> None:
    """Finish or undo a swap of `fresh` that a crash cut in two."""
    with locked(output.parent):
        _mend(output)


@contextmanager
def fresh(output: Path) -> Iterator[Path]:
    """A new folder that takes the place of `output` when the block ends well, and else vanishes."""
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True)
        yield partial
        with locked(output.parent):
            _place(partial, output)
    except _disk_errors() as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise CardError(
            f"the card can't be written to {output}: {reason}; the previous contents are kept"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _disk_errors() -> tuple[type[Exception], ...]:
    """OSError, and what safetensors, where it is in use, raises in its place."""
    safetensors = sys.modules.get("safetensors")
    return (OSError,) if safetensors is None else (OSError, safetensors.SafetensorError)


def _place(partial: Path, output: Path) -> None:
    """Swap the folders; after Ctrl-C or an error in between the old one is back."""
    _mend(output)
    try:
        if output.exists():
            output.rename(_aside(output))
        partial.rename(output)
    finally:
        _mend(output)


def _aside(output: Path) -> Path:
    return output.with_name(f".{output.name}.replaced")


def _mend(output: Path) -> None:
    """Finish or undo a swap that a crash cut in two."""
    aside = _aside(output)
    if aside.exists() and not output.exists():
        aside.rename(output)
    elif aside.exists():
        shutil.rmtree(aside)
