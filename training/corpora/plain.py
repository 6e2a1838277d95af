"""Plain text: a statement a line, or a document whose structure is shown by blank lines and indentation (layout.py)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise

from kcard.training.corpora import layout
from kcard.training.corpora.document import Block, Document
from kcard.training.corpora.lines import lines

__all__ = ["SENTENCE_END", "blocks", "read"]

SENTENCE_END = re.compile(r"[.!?:;。！？…।॥؟۔][\"'”’»)\]]*$")
LOOKED_AT = 400  # lines
FEW = 0.1


def read(document: Document) -> Iterator[Block]:
    return blocks(lines(document.path))


def blocks(numbered: Iterable[tuple[int, str]]) -> Iterator[Block]:
    """Each line, where the first lines look like a list of statements; else the blocks that the layout shows."""
    numbered = iter(numbered)
    head = list(islice(numbered, LOOKED_AT))
    if is_laid_out([line for _, line in head]):
        yield from layout.blocks(chain(head, numbered))
    else:
        for number, line in chain(head, numbered):
            if line.strip():
                yield Block("statement", line.strip(), number)


def is_laid_out(sample: Sequence[str]) -> bool:
    """Whether lines are wrapped, indented or underlined, so that a line alone says little."""
    filled = [line for line in sample if line.strip()]
    indented = sum(line[0] in " \t" for line in filled)
    wrapped = sum(
        not SENTENCE_END.search(before.rstrip()) and after[:1].islower()
        for before, after in pairwise(sample)
        if before.strip()
    )
    underlined = any(layout.UNDERLINE.fullmatch(line) for line in filled[1:])
    return underlined or wrapped > FEW * len(filled) / 4 or indented > FEW * len(filled)
