"""Evidence from a folder: an index on disk.

    FOLDER/corpus.json      what the index is made of: each file with its size, time, sha256 and segment
    FOLDER/segments/        the passages of each file (segment.py), by the hash of its content
    FOLDER/index-HASH/      the BM25 index of them all, as bm25s saves it

Files with a changed size or time are hashed, those with a changed hash are read, and the index is merged from all
segments, byte for byte as if everything had been read anew. Everything is written next to its place and moved there,
corpus.json last: a crash at any moment leaves the old index or the new one, and processes can't harm each other. What
is damaged is rebuilt.
"""

import bisect
import hashlib
import itertools
import json
import os
import shutil
import time
import zipfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kcard.errors import CardError, CorpusError
from kcard.index import Index, Postings
from kcard.interfaces import Evidence
from kcard.io import build, locked, parse, replacing
from kcard.manifest import file_digest
from kcard.types import Source

# A segment holds the passages of one file and their word counts, under the hash of the file's content.
#
# It consists of KEY.jsonl, one passage per line, and KEY.npz, which is written last. Neither ever changes.

# The errors of reading a missing, truncated or changed segment.
READING_ERRORS = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)
MAX_PASSAGE_CHARACTERS = 1500  # characters of a passage; a checker reads some 2,000
SENTENCE_ENDS = ("。", "！", "？", "।", "॥", "؟", "۔", ". ", "! ", "? ", "… ")


@dataclass(frozen=True)
class Segment:
    """The passages of one file. `name`: of the file, unless a passage names another."""

    folder: Path
    key: str
    name: str

    @classmethod
    def write(cls, folder: Path, key: str, name: str, blocks: Iterable[Source]) -> "Segment":
        """Write the blocks of a file; long ones become several passages. Errors of reading blocks pass through."""
        segment = cls(folder, key, name)
        folder.mkdir(parents=True, exist_ok=True)
        texts, counts = (path.with_name(f".{path.name}.{os.getpid()}.partial") for path in segment.paths)
        starts = array("q")
        try:
            with texts.open("wb") as stream:
                postings = Postings.of(_write_passages(blocks, name, stream, starts))
            with counts.open("wb") as stream:
                arrays: dict[str, Any] = {"starts": np.asarray(starts, np.int64), **postings.arrays()}
                np.savez(stream, **arrays)
            for partial, place in zip((texts, counts), segment.paths, strict=True):
                partial.replace(place)
        finally:
            texts.unlink(missing_ok=True)
            counts.unlink(missing_ok=True)
        return segment

    @property
    def rows(self) -> int:
        """Return the number of passages. Raises one of READING_ERRORS if the segment is damaged."""
        with self.paths[1].open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            rows = len(arrays["starts"])
        if rows and self.paths[0].stat().st_size <= int(self._starts[-1]):
            raise ValueError(f"{self.paths[0]} is cut off")
        return rows

    @property
    def size(self) -> int:
        """Return the bytes of both files; 0 if one is missing."""
        try:
            return sum(path.stat().st_size for path in self.paths)
        except OSError:
            return 0

    @property
    def postings(self) -> Postings:
        """Return the word counts of the passages. Raises one of READING_ERRORS."""
        with self.paths[1].open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return Postings.of_arrays(arrays)

    def source(self, row: int) -> Source:
        """Return a passage. Raises one of READING_ERRORS."""
        with self.paths[0].open("rb") as stream:
            stream.seek(int(self._starts[row]))
            return self._source(stream.readline())

    def sources(self) -> Iterator[Source]:
        """Yield all passages, in order. Raises one of READING_ERRORS."""
        with self.paths[0].open("rb") as stream:
            yield from map(self._source, stream)

    def _source(self, line: bytes) -> Source:
        return Source(**{"file": self.name, **parse(line.decode())})

    @cached_property
    def _starts(self) -> Any:
        with self.paths[1].open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return arrays["starts"]

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.folder / f"{self.key}.jsonl", self.folder / f"{self.key}.npz"


def _write_passages(blocks: Iterable[Source], name: str, stream: Any, starts: "array[int]") -> Iterator[str]:
    """Write each passage, append its offset to `starts`, and yield its text."""
    for block in blocks:
        for text in parts(block.text):
            row: dict[str, Any] = {"text": text, "line": block.line}
            indexed = text
            if block.file != name:
                row["file"] = block.file
            if block.section:
                row["section"] = block.section
                indexed = f"{block.section}: {text}"
            starts.append(stream.tell())
            stream.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            yield indexed


def parts(text: str) -> Iterator[str]:
    """Split a text into pieces of at most 1,500 characters, after a sentence, else after a word, else anywhere."""
    rest = " ".join(text.split())
    while len(rest) > MAX_PASSAGE_CHARACTERS:
        half = MAX_PASSAGE_CHARACTERS // 2
        at = max(rest.rfind(mark, half, MAX_PASSAGE_CHARACTERS) + len(mark) for mark in SENTENCE_ENDS)
        if at <= half:
            at = rest.rfind(" ", half, MAX_PASSAGE_CHARACTERS) + 1 or MAX_PASSAGE_CHARACTERS
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest


MANIFEST = "corpus.json"
SEGMENTS = "segments"
FORMAT = 1
# A file that changed so shortly before it was examined may change again within a tick of its clock.
CLOCK_TICK = 2_000_000_000  # ns
RETENTION_SECONDS = 86_400  # that unused files are kept, for processes that have them open


class CorpusReader(Protocol):
    """Lists and reads the files of a corpus. `version` changes if they are read differently."""

    @property
    def version(self) -> str: ...

    def list(self) -> tuple[Sequence[tuple[Path, str]], Sequence[tuple[str, str]]]:
        """Return (file, name) of files to read, in a stable order, and (name, reason) of others. Raises CorpusError."""
        ...

    def beside(self, file: Path) -> Sequence[Path]:
        """Return other files that determine how this one is read."""
        ...

    def read(self, file: Path, name: str) -> Iterator[Source]:
        """Yield the blocks of text of a file. Raises CorpusError."""
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
class IndexManifest:
    """The files that an index was made of. `looked_at`: when they were examined, in ns since 1970."""

    files: tuple[IndexedFile, ...] = ()
    looked_at: int = 0
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """Return the sha256 over the lines "sha256  name" of the files."""
        return _sha256(f"{e.sha256}  {e.name}" for e in self.files)

    @property
    def index(self) -> str:
        return "index-" + _sha256(e.segment for e in self.files)

    @property
    def used(self) -> set[str]:
        """The files and folders of the index that this manifest needs."""
        if not self.files:
            return set()
        names = {self.index}
        for entry in self.files:
            segment = Segment(Path(), entry.segment, entry.name)
            names.update(path.name for path in segment.paths)
        return names


@dataclass(frozen=True)
class OpenIndex:
    """An index that is up to date. `paths`: where each file of the manifest, and what lies beside it, is."""

    manifest: IndexManifest
    index: Index
    paths: Sequence[Sequence[Path]]
    skipped: Sequence[tuple[str, str]]


def open_index(files: CorpusReader, folder: Path, what: str) -> OpenIndex:
    """Open the index in `folder`, making or updating it first. `what` names the corpus in errors.

    Raises CorpusError if the corpus has no text, can't be read, or the index can't be written.
    """
    listed, skipped = files.list()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            return _refresh_index(files, listed, [*skipped], folder, what)
    except OSError as error:
        raise CorpusError(
            f"evidence {what}: its index can't be written to {folder} ({error.strerror or error}): free "
            "some space, or set KCARD_HOME to another folder"
        ) from error


def forget(folder: Path) -> None:
    """Delete the index, so that it is rebuilt when it is next opened."""
    with suppress(OSError):
        (folder / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(folder / SEGMENTS, ignore_errors=True)


def stamp(paths: Iterable[Path]) -> str:
    """Return size and modification time of files, which tell whether to hash them; "" for a missing one."""
    stamps = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:
            stamps.append("")
        else:
            stamps.append(f"{stat.st_size}-{stat.st_mtime_ns}")
    return " ".join(stamps)


def _newest(stamp: str) -> int:
    """Return the latest modification time of the files of a stamp, in ns since 1970; 0 if all are missing."""
    return max(int(part.rpartition("-")[2] or 0) for part in stamp.split(" "))


def _refresh_index(
    files: CorpusReader,
    listed: Sequence[tuple[Path, str]],
    skipped: list[tuple[str, str]],
    folder: Path,
    what: str,
) -> OpenIndex:
    before = _read_manifest(folder)
    now = time.time_ns()
    earlier = {e.name: e for e in before.files}
    entries, paths = [], []
    for file, name in listed:
        try:
            together = [file, *files.beside(file)]
            entry = _indexed_file(
                files, together, name, earlier.get(name), before.looked_at, folder / SEGMENTS
            )
        except CorpusError as error:
            if len(listed) == 1:
                raise
            skipped.append((name, str(error).removeprefix(str(file)).lstrip(": ")))
            continue
        entries.append(entry)
        paths.append(together)
    after = IndexManifest(tuple(entries), now)
    if not sum(e.rows for e in entries):
        why = ""
        if skipped:
            name, reason = skipped[0]
            why = f" ({name}: {reason})"
        raise CorpusError(f"evidence {what} contains no text{why}: add at least one sentence")
    index = _load_or_merge_index(after, folder, what)
    # Rewrite the manifest also where a file changed so shortly before it was looked at that its stamp can't be trusted.
    newest = max((_newest(e.stamp) for e in before.files), default=0)
    if after.files != before.files or newest >= before.looked_at - CLOCK_TICK:
        with replacing(folder / MANIFEST) as stream:
            stream.write(json.dumps(asdict(after), ensure_ascii=False).encode())
        # Remove what has been unused for a day; mark what is unused from now on with the time.
        dropped, used = before.used - after.used, {*after.used, MANIFEST, SEGMENTS}
        oldest = time.time() - RETENTION_SECONDS
        for path in [*folder.iterdir(), *(folder / SEGMENTS).iterdir()]:
            with suppress(OSError):  # another process may be as tidy
                if path.name in dropped:
                    os.utime(path)
                elif path.name not in used and path.stat().st_mtime < oldest:
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink()
    return OpenIndex(after, index, paths, skipped)


def _indexed_file(
    files: CorpusReader,
    paths: Sequence[Path],
    name: str,
    earlier: IndexedFile | None,
    looked_at: int,
    folder: Path,
) -> IndexedFile:
    """Return the file's earlier entry if it is unchanged, else one with a segment of its present content."""
    seen = stamp(paths)
    whole = earlier is not None and Segment(folder, earlier.segment, name).size == earlier.size
    if earlier and whole and earlier.stamp == seen and _newest(seen) < looked_at - CLOCK_TICK:
        return earlier
    try:
        digests = [file_digest(path) for path in paths]
    except OSError as error:
        raise CorpusError(f"{paths[0]}: can't be read ({error.strerror}): check its permissions") from error
    sha256 = digests[0]
    if len(digests) > 1:
        sha256 = _sha256(digests)
    key = _sha256([files.version, paths[0].suffix.lower(), sha256])
    segment = Segment(folder, key, name)
    if not (earlier and whole and earlier.segment == key):
        try:
            rows = segment.rows
        except READING_ERRORS:
            rows = Segment.write(folder, key, name, files.read(paths[0], name)).rows
    else:
        rows = earlier.rows
    return IndexedFile(name, seen, sha256, key, rows, segment.size)


def _load_or_merge_index(manifest: IndexManifest, folder: Path, what: str) -> Index:
    place = folder / manifest.index
    with suppress(CardError):
        return Index.load(place)
    partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        Index.merge(_Segments(manifest, folder), partial)
        shutil.rmtree(place, ignore_errors=True)  # a damaged one
        partial.rename(place)
        return Index.load(place)
    except OSError:
        raise
    except (*READING_ERRORS, CardError) as error:
        if str(error) == "no text has a word":
            raise CorpusError(f"evidence {what} contains no words: add at least one sentence") from error
        forget(folder)
        raise CorpusError(f"evidence {what}: its index was damaged and will be rebuilt: try again") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@dataclass(frozen=True)
class _Segments(Iterable[Postings]):
    """The word counts of every file, in order; can be iterated repeatedly."""

    manifest: IndexManifest
    folder: Path

    def __iter__(self) -> Iterator[Postings]:
        for entry in self.manifest.files:
            yield Segment(self.folder / SEGMENTS, entry.segment, entry.name).postings


def _read_manifest(folder: Path) -> IndexManifest:
    """Read the manifest; return an empty one if there is none that this version can read."""
    try:
        manifest = build(IndexManifest, parse((folder / MANIFEST).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return IndexManifest()
    if manifest.format != FORMAT:
        return IndexManifest()
    return manifest


def _sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


MAX_LISTED_FILES = 5


class LocalCorpus(Evidence):
    """The texts of a corpus as they were when it was opened, retrieved by BM25; equal scores keep the files' order."""

    def __init__(self, opened: OpenIndex, folder: Path, name: str) -> None:
        self.name, self.digest = name, opened.manifest.digest
        self._folder, self._opened = folder, opened
        files = opened.manifest.files
        self._segments = [Segment(folder / SEGMENTS, e.segment, e.name) for e in files]
        self._ends = list(itertools.accumulate(e.rows for e in files))
        self._changed: set[int] = set()

    @classmethod
    def open(cls, files: CorpusReader, folder: Path, name: str) -> "LocalCorpus":
        """Open the corpus of these files, with its index in `folder`, making or updating it first.

        Raises CorpusError if it has no text, can't be read, or its index can't be written.
        """
        return cls(open_index(files, folder, name), folder, name)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes for the user on files that were left out, and on those that changed since it was opened."""
        skipped = self._opened.skipped
        notes = []
        for file, why in skipped[:MAX_LISTED_FILES]:
            notes.append(f"evidence {self.name}: {file} is left out: {why}")
        if len(skipped) > MAX_LISTED_FILES:
            notes.append(f"evidence {self.name}: {len(skipped) - MAX_LISTED_FILES} more files are left out")
        for at in sorted(self._changed):
            file = self._segments[at].name
            notes.append(f"evidence {self.name}: {file} changed; its earlier version was used")
        return tuple(notes)

    def __len__(self) -> int:
        return self._ends[-1]

    def __iter__(self) -> Iterator[Source]:
        """Yield every text, file by file. Raises CorpusError if the index was damaged or removed."""
        with self._whole():
            for segment in self._segments:
                yield from segment.sources()

    def find(self, claim: str, k: int) -> list[Source]:
        """Return at most `k` texts that share a word with the claim, best first, with their BM25 scores."""
        with self._whole():
            sources = []
            for row, score in self._opened.index.search(claim, k):
                sources.append(replace(self._source(row), score=score))
            return sources

    def _source(self, row: int) -> Source:
        at = bisect.bisect_right(self._ends, row)
        if stamp(self._opened.paths[at]) != self._opened.manifest.files[at].stamp:
            self._changed.add(at)
        segment = self._segments[at]
        start = self._ends[at] - self._opened.manifest.files[at].rows
        return segment.source(row - start)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except READING_ERRORS as error:
            forget(self._folder)
            raise CorpusError(
                f"evidence {self.name}: its index in {self._folder} was damaged or removed: try again to rebuild it"
            ) from error
