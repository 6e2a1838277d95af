"""A local corpus as evidence: what it held when it was opened, whatever becomes of its files meanwhile."""

import bisect
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kcard.answer import Source
from kcard.errors import CorpusError
from kcard.selectors.evidence.corpus_index import SEGMENTS, Files, Opened, forget, stamp, up_to_date
from kcard.selectors.evidence.segment import BROKEN, Segment

__all__ = ["LocalCorpus"]

LISTED = 5


class LocalCorpus:
    """Every text of a corpus, found by BM25. Equal scores stand in the order of the files."""

    def __init__(self, opened: Opened, folder: Path, name: str) -> None:
        self.name = name
        self._folder, self._opened = folder, opened
        files = opened.catalogue.files
        self._segments = [Segment(folder / SEGMENTS, e.segment, e.name) for e in files]
        self._ends = list(itertools.accumulate(e.rows for e in files))
        self._changed: set[int] = set()

    @classmethod
    def open(cls, files: Files, folder: Path, name: str) -> "LocalCorpus":
        """The corpus of these files, with its index in `folder`: made where there is none, else brought up to date.

        Raises CorpusError where it holds no text, can't be read, or its index can't be written.
        """
        return cls(up_to_date(files, folder, name), folder, name)

    @property
    def digest(self) -> str:
        """sha256 over the lines "sha256  name" of its files, as they were when it was opened."""
        return self._opened.catalogue.digest

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know: which files are not in it, and which changed since it was opened."""
        skipped = self._opened.skipped
        notes = [f"evidence {self.name}: {name} is left out: {why}" for name, why in skipped[:LISTED]]
        if len(skipped) > LISTED:
            notes.append(f"evidence {self.name}: {len(skipped) - LISTED} more files are left out")
        changed = [self._segments[at].name for at in sorted(self._changed)]
        return (
            *notes,
            *(f"evidence {self.name}: {file} changed; its earlier version was used" for file in changed),
        )

    def __len__(self) -> int:
        return self._ends[-1]

    def __iter__(self) -> Iterator[Source]:
        """Every text, file by file. Raises CorpusError where the index was damaged or taken away."""
        with self._whole():
            for segment in self._segments:
                yield from segment.sources()

    def find(self, claim: str, k: int) -> list[Source]:
        """At most `k` texts that share a word with the claim, best first, with their BM25 scores."""
        with self._whole():
            found = self._opened.index.search(claim, k)
            return [replace(self._source(row), score=score) for row, score in found]

    def _source(self, row: int) -> Source:
        at = bisect.bisect_right(self._ends, row)
        if stamp(self._opened.paths[at]) != self._opened.catalogue.files[at].stamp:
            self._changed.add(at)
        return self._segments[at].source(row - (self._ends[at - 1] if at else 0))

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except BROKEN as error:
            forget(self._folder)
            raise CorpusError(
                f"evidence {self.name}: its index in {self._folder} was damaged or removed: try again to rebuild it"
            ) from error
