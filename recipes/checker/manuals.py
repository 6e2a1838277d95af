"""Our own claims about sentences of manuals, in pairs that differ in a negation, a name, a number or a relation.

The manuals are those of recipes/reader/questions. The file does not contain their sentences but the length in words and
a hash of each, by which it is found in the manual as kcard reads it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from recipes.checker.rows import REFUTES, SUPPORTS, UNSUPPORTED, Row
from recipes.packages import Manual, read
from recipes.reader.own import Words, listed

PAIRS = Path(__file__).parent / "pairs.jsonl"
OPPOSED = ("negation", "affirmed", "number")


class Sentences:
    """The sentences that rows of a file name, in packages that are unpacked in a folder."""

    def __init__(self, packages: Path) -> None:
        self._packages = packages
        self._manuals = listed()
        self.passages = cache(self._read)

    def is_held_out(self, manual: str) -> bool:
        return self._manuals[manual][0].held

    def of(self, row: Mapping[str, Any]) -> str | None:
        """None where it is not found."""
        words = Words(*row["evidence"])
        for text in self.passages(row["manual"], row["file"]):
            if place := words.place(text):
                end = place[1] + (text[place[1] : place[1] + 1] in (".", "!"))
                return " ".join(text[place[0] : end].split())
        return None

    def _read(self, name: str, file: str) -> Sequence[str]:
        return [
            passage.text
            for manual in self._manuals[name]
            if (self._packages / manual.package / file).is_file()
            for passage in read(_only(manual, file), self._packages)
        ]


def _only(manual: Manual, file: str) -> Manual:
    return Manual(manual.name, manual.registry, manual.package, manual.version, (file,))


def pairs(packages: Path, rng: Random) -> Iterator[Row]:
    """Of manuals that are not held out: what is true, what is not, and what is true of another sentence there."""
    sentences = Sentences(packages)
    before: dict[str, str] = {}
    for line in PAIRS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        evidence = None if sentences.is_held_out(row["manual"]) else sentences.of(row)
        if evidence is None:
            continue
        yield Row(row["true"], evidence, SUPPORTS)
        yield Row(row["false"], evidence, REFUTES if row["kind"] in OPPOSED else UNSUPPORTED)
        if other := before.get(row["manual"]):
            yield Row(row[rng.choice(("true", "false"))], other, UNSUPPORTED)
        before[row["manual"]] = evidence
