"""The passages of one file of a corpus, with their words counted: read once, kept under the hash of its content.

A segment is KEY.jsonl, a passage a line, and KEY.npz beside it, which is written last. Neither ever changes.
"""

import json
import os
import zipfile
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from kcard.answer import Source
from kcard.json_values import parse
from kcard.postings import Postings

__all__ = ["BROKEN", "Segment", "parts"]

# What a missing, cut off or changed segment makes its readers raise.
BROKEN = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)
LONGEST = 1500  # characters of a passage; a checker reads some 2,000
ENDS = ("。", "！", "？", "।", "॥", "؟", "۔", ". ", "! ", "? ", "… ")


@dataclass(frozen=True)
class Segment:
    """`name`: of the file, which its passages bear unless they name another."""

    folder: Path
    key: str
    name: str

    @classmethod
    def write(cls, folder: Path, key: str, name: str, blocks: Iterable[Source]) -> "Segment":
        """Keep the blocks of a file; long ones in several passages. What the blocks raise goes through."""
        made = cls(folder, key, name)
        folder.mkdir(parents=True, exist_ok=True)
        texts, counts = (path.with_name(f".{path.name}.{os.getpid()}.partial") for path in made.paths)
        starts = array("q")
        try:
            with texts.open("wb") as stream:
                postings = Postings.of(_written(blocks, name, stream, starts))
            with counts.open("wb") as stream:
                arrays: dict[str, Any] = {"starts": np.asarray(starts, np.int64), **postings.arrays()}
                np.savez(stream, **arrays)
            for partial, place in zip((texts, counts), made.paths, strict=True):
                partial.replace(place)
        finally:
            texts.unlink(missing_ok=True)
            counts.unlink(missing_ok=True)
        return made

    @property
    def rows(self) -> int:
        """How many passages it has. Raises one of BROKEN unless it is whole."""
        with self.paths[1].open("rb") as stream, np.load(stream, allow_pickle=False) as found:
            rows = len(found["starts"])
        if rows and self.paths[0].stat().st_size <= int(self._starts[-1]):
            raise ValueError(f"{self.paths[0]} is cut off")
        return rows

    @property
    def size(self) -> int:
        """Bytes of both files; 0 where one is missing."""
        try:
            return sum(path.stat().st_size for path in self.paths)
        except OSError:
            return 0

    @property
    def postings(self) -> Postings:
        """The counted words of its passages. Raises one of BROKEN."""
        with self.paths[1].open("rb") as stream, np.load(stream, allow_pickle=False) as found:
            return Postings.of_arrays(found)

    def source(self, row: int) -> Source:
        """A passage. Raises one of BROKEN."""
        with self.paths[0].open("rb") as stream:
            stream.seek(int(self._starts[row]))
            return self._source(stream.readline())

    def sources(self) -> Iterator[Source]:
        """All passages, in order. Raises one of BROKEN."""
        with self.paths[0].open("rb") as stream:
            yield from map(self._source, stream)

    def _source(self, line: bytes) -> Source:
        return Source(**{"file": self.name, **parse(line.decode())})

    @cached_property
    def _starts(self) -> Any:
        with self.paths[1].open("rb") as stream, np.load(stream, allow_pickle=False) as found:
            return found["starts"]

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.folder / f"{self.key}.jsonl", self.folder / f"{self.key}.npz"


def _written(blocks: Iterable[Source], name: str, stream: Any, starts: "array[int]") -> Iterator[str]:
    """Write each passage, note where it starts, and pass its text on."""
    for block in blocks:
        for text in parts(block.text):
            row: dict[str, Any] = {"text": text, "line": block.line}
            row |= {} if block.file == name else {"file": block.file}
            row |= {"section": block.section} if block.section else {}
            starts.append(stream.tell())
            stream.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            yield f"{block.section}: {text}" if block.section else text


def parts(text: str) -> Iterator[str]:
    """The text, or pieces of it of at most 1,500 characters, cut after a sentence, else a word, else anywhere."""
    rest = " ".join(text.split())
    while len(rest) > LONGEST:
        half = LONGEST // 2
        at = max(rest.rfind(mark, half, LONGEST) + len(mark) for mark in ENDS)
        at = at if at > half else rest.rfind(" ", half, LONGEST) + 1 or LONGEST
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest
