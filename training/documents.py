"""Whole documents, as causal language modelling reads them: a file of prose, or one row of a table.

A card is trained to write on, so what follows a sentence in the text follows it here (Knowledge Card, section 2.1).
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from kcard.answer import Source
from kcard.training.corpora.document import Block
from kcard.training.duplicates import Fingerprints, fingerprint
from kcard.training.lazy import Lazy
from kcard.training.passages import PASSAGE, passages
from kcard.training.pieces import Size, sentences
from kcard.training.records import block_of
from kcard.training.spool import Spool

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["Documents", "rejoined"]

SENTENCE = Size(words=60, characters=480)


class Documents(Sequence[str]):
    """The distinct documents of a corpus in reading order, read from disk as they are asked for.

    Blocks of a document stand on lines of their own. Of equal documents the first is kept.
    """

    def __init__(self, blocks: Spool, starts: "array[int]", dropped: "npt.NDArray[np.bool_]") -> None:
        """`blocks`: records of blocks; `starts`: which block begins a document; `dropped`: which are left out."""
        self._blocks, self._dropped = blocks, dropped
        self._starts = starts + array("Q", [len(blocks)])
        prints, full = Fingerprints(), array("Q")
        for number in range(len(starts)):
            if text := self._text(number):
                prints.append(fingerprint(text), 0, line=False)
                full.append(number)
        marks = prints.marks(1)
        self._kept = array("Q", (number for number, mark in zip(full, marks, strict=True) if not mark))

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: int) -> str:  # type: ignore[override] # slices are not needed
        return self._text(self._kept[index])

    def of(self, wanted: Callable[[Source], bool]) -> Sequence[str]:
        """Those of whose passages one is wanted."""
        chosen = array("Q", (n for n in self._kept if any(map(wanted, self._passages(n)))))
        return Lazy(len(chosen), lambda index: self._text(chosen[index]))

    def _text(self, number: int) -> str:
        return "\n".join(block.text for _, block in self._read(number) if block.text.strip())

    def _passages(self, number: int) -> Iterator[Source]:
        found = [*self._read(number)]
        return passages((block for _, block in found), found[0][0])

    def _read(self, number: int) -> Iterator[tuple[str, Block]]:
        for at in range(self._starts[number], self._starts[number + 1]):
            if not self._dropped[at]:
                yield block_of(self._blocks[at])


def rejoined(found: Iterable[Source]) -> Iterator[str]:
    """The documents that a card's passages were cut from, as far as these tell: those of one file that follow each
    other, without headings."""
    for _, group in groupby(found, key=lambda passage: passage.file):
        first, *others = group
        text = first.text
        for before, passage in pairwise([first, *others]):
            text += (" " if _one_paragraph(before, passage) else "\n") + passage.text
        yield text


def _one_paragraph(before: Source, after: Source) -> bool:
    """Whether two passages were cut from one paragraph: they begin on one line, and no more fitted into the first."""
    if before.line != after.line or "\n" in before.text + after.text:
        return False
    return not PASSAGE.holds(f"{before.text} {next(sentences(after.text, SENTENCE), '')}")
