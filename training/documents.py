"""Whole documents, for causal language modelling (Knowledge Card, section 2.1).

A document is a file of prose, or a row of a table.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, groupby, pairwise
from typing import TYPE_CHECKING, Any

from kcard.training.duplicates import Fingerprints, fingerprint
from kcard.training.epochs import Lazy
from kcard.training.passages import PASSAGE, Size, passages, sentences
from kcard.training.readers.files import Block
from kcard.types import Source

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SENTENCE = Size(words=60, characters=480)


@dataclass(frozen=True)
class NamedBlock:
    """A block with the name of its document; `values`: its fields."""

    document: str
    values: Sequence[Any]

    @property
    def block(self) -> Block:
        return Block(*self.values)


class Documents(Sequence[str]):
    """The distinct documents of a corpus in reading order, read from disk on access.

    Each block of a document is a line. Of equal documents, the first is kept.
    """

    def __init__(
        self, blocks: Sequence[NamedBlock], starts: "array[int]", dropped: "npt.NDArray[np.bool_]"
    ) -> None:
        """Take the blocks of all documents, the indexes `starts` where these begin, and a mask `dropped`."""
        self._blocks, self._dropped = blocks, dropped
        self._starts = starts + array("Q", [len(blocks)])
        prints, full = Fingerprints(), array("Q")
        for number in range(len(starts)):
            text = self._text(number)
            if text:
                prints.append(fingerprint(text), 0, line=False)
                full.append(number)
        is_first = prints.marks(1) == 0
        self._distinct = array("Q", compress(full, is_first))

    def __len__(self) -> int:
        return len(self._distinct)

    def __getitem__(self, index: int) -> str:  # type: ignore[override] # slices are not needed
        return self._text(self._distinct[index])

    def select(self, accepts: Callable[[Source], bool]) -> Sequence[str]:
        """Return the documents with a passage that `accepts` selects."""
        chosen = array("Q")
        for number in self._distinct:
            rows = [*self._read(number)]
            if any(map(accepts, passages((row.block for row in rows), rows[0].document))):
                chosen.append(number)
        return Lazy(len(chosen), lambda index: self._text(chosen[index]))

    def _text(self, number: int) -> str:
        texts = [row.block.text for row in self._read(number)]
        return "\n".join(filter(str.strip, texts))

    def _read(self, number: int) -> Iterator[NamedBlock]:
        for at in range(self._starts[number], self._starts[number + 1]):
            if not self._dropped[at]:
                yield self._blocks[at]


def rejoin(sources: Iterable[Source]) -> Iterator[str]:
    """Rebuild documents from a card's passages: those of one file that follow each other, without headings."""
    for _, group in groupby(sources, key=lambda passage: passage.file):
        first, *others = group
        text = first.text
        for before, passage in pairwise([first, *others]):
            # They were cut from one paragraph if they begin on one line, and no more fitted into the first.
            mark = "\n"
            if before.line == passage.line and "\n" not in before.text + passage.text:
                first_sentence = next(sentences(passage.text, SENTENCE), "")
                if not PASSAGE.holds(f"{before.text} {first_sentence}"):
                    mark = " "
            text += mark + passage.text
        yield text
