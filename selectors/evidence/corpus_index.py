"""The index of a local corpus on disk: made once, and brought up to date when the corpus is opened.

    FOLDER/corpus.json      what the index is made of: each file with its size, time, sha256 and segment
    FOLDER/segments/        the passages of each file (segment.py), by the hash of its content
    FOLDER/index-HASH/      the BM25 index of them all, as bm25s saves it

Files with another size or time are hashed, those with another hash are read, and the index is made of all
segments, byte for byte as if everything had been read anew. Everything is written beside its place and moved there,
corpus.json last: a crash at any moment leaves the index of before or the new one, and two processes can't harm each
other. What is damaged is made again.
"""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from kcard.answer import Source
from kcard.errors import CardError, CorpusError
from kcard.files import locked, replacing
from kcard.index import Index
from kcard.json_values import build, parse
from kcard.manifest import file_digest
from kcard.postings import Postings
from kcard.selectors.evidence.segment import BROKEN, Segment

if sys.platform != "win32":
    pass

__all__ = ["Catalogue", "Files", "IndexedFile", "Opened", "forget", "stamp", "up_to_date"]

CATALOGUE = "corpus.json"
SEGMENTS = "segments"
FORMAT = 1
# A file that was changed so shortly before it was looked at may change again within a tick of its clock.
TICK = 2_000_000_000  # ns
KEPT = 86_400  # seconds that what went out of use stays, for processes that have it open


class Files(Protocol):
    """Which files a corpus has, and how they are read. `version` is another where they are read otherwise."""

    @property
    def version(self) -> str: ...

    def list(self) -> tuple[Sequence[tuple[Path, str]], Sequence[tuple[str, str]]]:
        """(file, name) of what is read, in a stable order, and (name, reason) of what is not. Raises CorpusError."""
        ...

    def beside(self, file: Path) -> Sequence[Path]:
        """Other files that decide how this one is read."""
        ...

    def read(self, file: Path, name: str) -> Iterator[Source]:
        """The blocks of text of a file. Raises CorpusError."""
        ...


@dataclass(frozen=True)
class IndexedFile:
    """One file of the corpus. `stamp`: see `stamp`. `size`: bytes of its segment."""

    name: str
    stamp: str
    sha256: str
    segment: str
    rows: int
    size: int


@dataclass(frozen=True)
class Catalogue:
    """`looked_at`: when the files were looked at, in ns since 1970."""

    files: tuple[IndexedFile, ...] = ()
    looked_at: int = 0
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """sha256 over the lines "sha256  name" of the files."""
        return _sha256(f"{e.sha256}  {e.name}" for e in self.files)

    @property
    def index(self) -> str:
        return "index-" + _sha256(e.segment for e in self.files)

    @property
    def used(self) -> set[str]:
        """The files and folders of the index that this catalogue needs."""
        segments = {path.name for e in self.files for path in Segment(Path(), e.segment, e.name).paths}
        return {self.index, *segments} if self.files else set()


@dataclass(frozen=True)
class Opened:
    """An index that is up to date. `paths`: where each file of the catalogue, and what lies beside it, is."""

    catalogue: Catalogue
    index: Index
    paths: Sequence[Sequence[Path]]
    skipped: Sequence[tuple[str, str]]


def up_to_date(files: Files, folder: Path, what: str) -> Opened:
    """The index in `folder`, made or brought up to date. `what` names the corpus in errors.

    Raises CorpusError where the corpus holds no text, can't be read, or the index can't be written.
    """
    listed, skipped = files.list()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            return _opened(files, listed, [*skipped], folder, what)
    except OSError as error:
        raise CorpusError(
            f"evidence {what}: its index can't be written to {folder} ({error.strerror or error}): free "
            "some space, or set KCARD_HOME to another folder"
        ) from error


def forget(folder: Path) -> None:
    """Have the index made anew when it is next opened."""
    with suppress(OSError):
        (folder / CATALOGUE).unlink(missing_ok=True)
        shutil.rmtree(folder / SEGMENTS, ignore_errors=True)


def stamp(paths: Iterable[Path]) -> str:
    """Size and time of last change of files, which tell whether they are worth hashing; "" of a missing one."""
    return " ".join(f"{found.st_size}-{found.st_mtime_ns}" if found else "" for found in map(_stat, paths))


def _opened(
    files: Files,
    listed: Sequence[tuple[Path, str]],
    skipped: list[tuple[str, str]],
    folder: Path,
    what: str,
) -> Opened:
    before, now = _read(folder), time.time_ns()
    known = {e.name: e for e in before.files}
    entries, paths = [], []
    for file, name in listed:
        try:
            together = [file, *files.beside(file)]
            entry = _entry(files, together, name, known.get(name), before.looked_at, folder / SEGMENTS)
        except CorpusError as error:
            if len(listed) == 1:
                raise
            skipped.append((name, str(error).removeprefix(str(file)).lstrip(": ")))
            continue
        entries.append(entry)
        paths.append(together)
    after = Catalogue(tuple(entries), now)
    if not sum(e.rows for e in entries):
        why = f" ({skipped[0][0]}: {skipped[0][1]})" if skipped else ""
        raise CorpusError(f"evidence {what} contains no text{why}: add at least one sentence")
    index = _index(after, folder, what)
    if after.files != before.files or _fresh(before):
        _place(folder / CATALOGUE, json.dumps(asdict(after), ensure_ascii=False))
        _collect(folder, before.used - after.used, after.used)
    return Opened(after, index, paths, skipped)


def _entry(
    files: Files, paths: Sequence[Path], name: str, known: IndexedFile | None, looked_at: int, folder: Path
) -> IndexedFile:
    """The file's entry: the known one where the file is as it was, else one with a segment of what it holds now."""
    seen = stamp(paths)
    whole = known is not None and Segment(folder, known.segment, name).size == known.size
    if known and whole and known.stamp == seen and _newest(paths) < looked_at - TICK:
        return known
    try:
        sha256 = _sha256(file_digest(path) for path in paths) if paths[1:] else file_digest(paths[0])
    except OSError as error:
        raise CorpusError(f"{paths[0]}: can't be read ({error.strerror}): check its permissions") from error
    key = _sha256([files.version, paths[0].suffix.lower(), sha256])
    segment = Segment(folder, key, name)
    if not (known and whole and known.segment == key):
        try:
            rows = segment.rows
        except BROKEN:
            rows = Segment.write(folder, key, name, files.read(paths[0], name)).rows
    else:
        rows = known.rows
    return IndexedFile(name, seen, sha256, key, rows, segment.size)


def _index(catalogue: Catalogue, folder: Path, what: str) -> Index:
    place = folder / catalogue.index
    with suppress(CardError):
        return Index.load(place)
    partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        Index.merge(_Segments(catalogue, folder), partial)
        shutil.rmtree(place, ignore_errors=True)  # a damaged one
        partial.rename(place)
        return Index.load(place)
    except OSError:
        raise
    except (*BROKEN, CardError) as error:
        if str(error) == "no text has a word":
            raise CorpusError(f"evidence {what} contains no words: add at least one sentence") from error
        forget(folder)
        raise CorpusError(f"evidence {what}: its index was damaged and will be rebuilt: try again") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@dataclass(frozen=True)
class _Segments(Iterable[Postings]):
    """The counted words of every file, in order, as often as they are gone through."""

    catalogue: Catalogue
    folder: Path

    def __iter__(self) -> Iterator[Postings]:
        for entry in self.catalogue.files:
            yield Segment(self.folder / SEGMENTS, entry.segment, entry.name).postings


def _read(folder: Path) -> Catalogue:
    """An empty one where there is none, or none that this version can read."""
    try:
        found = build(Catalogue, parse((folder / CATALOGUE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Catalogue()
    return found if found.format == FORMAT else Catalogue()


def _fresh(catalogue: Catalogue) -> bool:
    """Whether a file of it changed so shortly before it was looked at that its stamp can't be trusted."""
    newest = [int(part.rpartition("-")[2] or 0) for e in catalogue.files for part in e.stamp.split(" ")]
    return max(newest, default=0) >= catalogue.looked_at - TICK


def _newest(paths: Sequence[Path]) -> int:
    return max((found.st_mtime_ns for found in map(_stat, paths) if found), default=0)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _place(path: Path, text: str) -> None:
    with replacing(path) as stream:
        stream.write(text.encode())


def _collect(folder: Path, dropped: set[str], used: set[str]) -> None:
    """Remove what has been out of use for a day; what goes out of use now is marked with the time."""
    oldest = time.time() - KEPT
    for path in [*folder.iterdir(), *(folder / SEGMENTS).iterdir()]:
        with suppress(OSError):  # another process may be as tidy
            if path.name in dropped:
                os.utime(path)
            elif path.name not in {*used, CATALOGUE, SEGMENTS} and path.stat().st_mtime < oldest:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
