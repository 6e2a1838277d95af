"""Which files of a folder are read, and why the others are not."""

import os
import re
from pathlib import Path

from kcard.errors import CorpusError
from kcard.training.corpora.document import reading
from kcard.training.corpora.formats import format_of, known
from kcard.training.corpora.triples import TEMPLATE_FILE

__all__ = ["files_of"]

LEGAL = re.compile(r"(licen[cs]e|copying|copyright|notice)(\.txt|\.md|\.rst)?(\.gz)?", re.IGNORECASE)
CHANGES = re.compile(r"(changelog|changes)(\.debian)?(\.[a-z0-9]+)?(\.txt|\.md|\.rst)?(\.gz)?", re.IGNORECASE)

Skipped = list[tuple[str, str]]


def files_of(path: Path) -> tuple[list[tuple[Path, str]], Skipped]:
    """(file, its name within the corpus), in the order of names, and (name, reason) of what is not read.

    Hidden files and folders are passed over in silence; links to folders are not followed. Raises CorpusError where
    `path` is missing, is neither file nor folder, or a file of another kind.
    """
    with reading(path):
        if not path.exists():
            raise CorpusError(f"{path} does not exist: name a file or folder of {known()}, or hf:owner/name")
        if path.is_dir():
            return _walked(path)
    if not path.is_file():
        raise CorpusError(f"{path} is neither a file nor a folder: kcard reads {known()}")
    if format_of(path, named=True) is None:
        raise CorpusError(f"{path} is a {path.suffix or 'hidden'} file: kcard reads {known()}")
    return [(path, _readable(path.name))], []


def _walked(root: Path) -> tuple[list[tuple[Path, str]], Skipped]:
    files: list[Path] = []
    skipped: Skipped = []

    def refused(error: OSError) -> None:
        skipped.append((_name(Path(error.filename), root), f"can't be read ({error.strerror})"))

    for folder, folders, names in os.walk(root, onerror=refused):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        skipped += [
            (_name(here / name, root), "a link to a folder, not followed")
            for name in folders
            if (here / name).is_symlink()
        ]
        for name in sorted(name for name in names if not name.startswith(".")):
            reason = _why_not(here / name)
            if reason is None:
                files.append(here / name)
            elif reason:
                skipped.append((_name(here / name, root), reason))
    return [(file, _name(file, root)) for file in sorted(files)], sorted(skipped)


def _why_not(file: Path) -> str | None:
    """Why a file of a folder is not read; None for one that is, "" for one that serves another."""
    if file.is_symlink() and not file.exists():
        return "a broken link"
    if not file.is_file():
        return "not a regular file"
    if file.name == TEMPLATE_FILE:
        return ""
    if LEGAL.fullmatch(file.name):
        return "a licence; name it to read it"
    if CHANGES.fullmatch(file.name):
        return "a change log; name it to read it"
    return None if format_of(file) else f"not one of {known()}"


def _name(file: Path, root: Path) -> str:
    return _readable(file.relative_to(root).as_posix())


def _readable(name: str) -> str:
    """The name as UTF-8 can hold it: file systems may keep other bytes."""
    return os.fsencode(name).decode("utf-8", "replace")
