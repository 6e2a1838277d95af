"""Where a card is written: in a fresh folder beside its place, swapped in when it is whole.

A crash at any moment leaves the old card or the new one.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kcard.errors import UsageError
from kcard.manifest import MANIFEST, Manifest

__all__ = ["CHECKPOINT", "claim", "fresh"]

CHECKPOINT = ".checkpoint"


def claim(output: Path, name: str) -> None:
    """Refuse an output that is not ours to replace: it may be missing, empty, or hold a card of this name."""
    _mend(output)
    if not output.exists():
        return
    if not output.is_dir():
        raise UsageError(f"output {output} is a file: name a folder")
    if (output / MANIFEST).exists():
        found = Manifest.read(output).name
        if found != name:
            raise UsageError(
                f"output {output} holds the card {found!r}, not {name!r}: name another folder or that card"
            )
        return
    strange = sorted(p.name for p in output.iterdir() if p.name != CHECKPOINT)
    if strange:
        raise UsageError(f"output {output} holds {strange[0]!r} and no card: name a new or empty folder")


@contextmanager
def fresh(output: Path) -> Iterator[Path]:
    """A new folder that takes the place of `output` when the block ends well, and else vanishes."""
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    partial.mkdir(parents=True)
    try:
        yield partial
        if output.exists():
            output.rename(_aside(output))
        partial.rename(output)
        shutil.rmtree(_aside(output), ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _aside(output: Path) -> Path:
    return output.with_name(f".{output.name}.replaced")


def _mend(output: Path) -> None:
    """Finish or undo a swap that a crash cut in two."""
    aside = _aside(output)
    if aside.exists() and not output.exists():
        aside.rename(output)
    elif aside.exists():
        shutil.rmtree(aside)
