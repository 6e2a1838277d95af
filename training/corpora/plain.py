"""Plain text: a statement a line, or paragraphs of prose whose lines are wrapped."""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from kcard.answer import Source
from kcard.training.corpora.document import Document
from kcard.training.corpora.lines import lines

__all__ = ["SENTENCE_END", "blocks", "read"]

SENTENCE_END = re.compile(r"[.!?:;。！？…।॥؟۔][\"'”’»)\]]*$")
PARAGRAPH = 500  # lines


def read(document: Document) -> Iterator[Source]:
    for number, block in blocks(lines(document.path)):
        yield document.source(block, number)


def blocks(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Each line, or each paragraph where its lines are wrapped: one of them goes on in lower case."""
    paragraph: list[tuple[int, str]] = []
    for number, line in numbered:
        if line.strip():
            paragraph.append((number, line.strip()))
        # A paragraph without an end is looked at all the same, best where a sentence ends.
        long = len(paragraph) >= (PARAGRAPH if SENTENCE_END.search(line.rstrip()) else 2 * PARAGRAPH)
        if long or not line.strip():
            yield from _blocks(paragraph)
            paragraph = []
    yield from _blocks(paragraph)


def _blocks(paragraph: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    pairs = pairwise(paragraph)
    if any(after[:1].islower() and not SENTENCE_END.search(before) for (_, before), (_, after) in pairs):
        yield paragraph[0][0], " ".join(line for _, line in paragraph)
    else:
        yield from paragraph
