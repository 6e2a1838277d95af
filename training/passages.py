"""The blocks of a document become passages: what an index finds, a card cites and an LLM reads.

A passage holds neighbouring blocks of one section, up to 150 words, and knows its headings. A definition of more than
40 words is a section of its own, with its term as the heading. Statements (lines of a list of facts, rows of data)
are passages of their own.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import PurePath

from kcard.answer import Source
from kcard.training.corpora.document import Block
from kcard.training.pieces import Size, count_words, cut

__all__ = ["PASSAGE", "passages"]

PASSAGE = Size(words=150, characters=1200)
ENTRY = 40  # words
CONTENTS = 3  # lines of a table of contents at least
NUMBER = re.compile(r"^[\W_]*(?:\d+(?:\.\d+)*[.)]?(?![^\W\d_])|[A-Z]\.(?=\s))?")  # "- 1.2. Title"
PAGE = re.compile(
    r"(?:\s+\|[^\s|]+\||(?:[.…·]\s?){3,}\s*\w+|\s{2,}\d+)\s*$"
)  # "Title |tag|", "Title .... 12"
SIGNS = re.compile(r"[\W_]+")
HEADING, INNERMOST = (
    12,
    30,
)  # words of a heading over others, and of the innermost one, which may be a question
TELLING = 4  # words that the heading of an empty section has at least to be kept as text
UNTELLING = {"index", "readme", "text", "document", "passages", "main", "default"}


def passages(blocks: Iterable[Block], file: str) -> Iterator[Source]:
    """The passages of one document, in its order; `file`: how they name it."""
    grouping = _Grouping(file)
    for block in _without_contents([*blocks]):
        yield from grouping.take(block)
    yield from grouping.end()


def _without_contents(blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks without tables of contents: lines in a row that are nothing but headings that come after them."""
    last: dict[str, int] = {}  # of each heading the place of the last that reads so
    for at, block in enumerate(blocks):
        if block.kind == "heading":
            last |= dict.fromkeys(_titles(block.text), at)
    for is_contents, group in groupby(enumerate(blocks), lambda row: _is_contents(row[0], row[1], last)):
        run = [block for _, block in group]
        if not is_contents or sum(block.text.count("\n") + 1 for block in run) < CONTENTS:
            yield from run


def _is_contents(at: int, block: Block, last: Mapping[str, int]) -> bool:
    return block.kind in ("text", "item", "code") and all(
        any(last.get(title, -1) > at for title in _titles(line)) for line in block.text.split("\n")
    )


def _titles(line: str) -> tuple[str, ...]:
    """The letters and digits of a title with its number and without it; what leads to its page is no part of it."""
    title = PAGE.sub("", line)
    with_number, without = (SIGNS.sub("", text).casefold() for text in (title, NUMBER.sub("", title)))
    return tuple(text for text in (with_number, without) if text)


@dataclass
class _Heading:
    """`used`: whether something stands under it."""

    level: int
    text: str
    line: int
    used: bool = False


@dataclass
class _Entry:
    """A term and what was read of its definition; `open`: it is long, so that its blocks are passed on as they come."""

    term: Block
    blocks: list[Block] = field(default_factory=list)
    open: bool = False

    @property
    def item(self) -> Block:
        words = ""
        for before, block in pairwise([self.term, *self.blocks]):
            words += ("\n" if "code" in (before.kind, block.kind) else " ") + block.text
        text = f"{self.term.text}:{words}" if words else self.term.text
        return Block("item", text, self.term.line, lines=_lines([self.term, *self.blocks])[1:])


class _Grouping:
    """It remembers the headings over the next block, the definitions that are open, and the blocks that wait for more
    to join them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._headings: list[_Heading] = []
        self._entries: list[_Entry] = []
        self._waiting: list[Block] = []
        self._waiting_for = ""  # the section of what waits

    def take(self, block: Block) -> Iterator[Source]:
        """The passages that are complete once this block has come."""
        if block.kind == "heading":
            yield from self._close_entries(1)
            yield from self._head(block)
        elif block.kind == "term":
            yield from self._close_entries(block.level)
            if block.text:
                self._entries.append(_Entry(block))
        elif block.kind == "statement":
            yield from self._statement(block)
        else:
            yield from self._put(block, len(self._entries))

    def end(self) -> Iterator[Source]:
        yield from self._close_entries(1)
        yield from self._leave(0)
        yield from self._flush()

    def _statement(self, block: Block) -> Iterator[Source]:
        yield from self._close_entries(1)
        yield from self._flush()
        section = self._section() if block.section is None else block.section
        file = self._file if block.file is None else block.file
        yield from _cut([block], file, section)

    def _head(self, block: Block) -> Iterator[Source]:
        yield from self._leave(block.level)
        self._headings.append(_Heading(block.level, block.text, block.line))

    def _leave(self, level: int) -> Iterator[Source]:
        """End the sections of this level and deeper. The heading of an empty one is kept as text."""
        while self._headings and self._headings[-1].level >= level:
            heading = self._headings.pop()
            if not heading.used and count_words(heading.text) >= TELLING:
                yield from self._put(Block("text", heading.text, heading.line), 0)

    def _put(self, block: Block, depth: int) -> Iterator[Source]:
        """Into the definition at this depth; at depth 0 among the blocks that wait."""
        if depth == 0 or self._entries[depth - 1].open:
            yield from self._wait(block)
            return
        entry = self._entries[depth - 1]
        entry.blocks.append(block)
        if sum(count_words(part.text) for part in entry.blocks) > ENTRY:
            yield from self._open(depth)

    def _open(self, depth: int) -> Iterator[Source]:
        """Make a long definition, and those that it stands in, sections."""
        for entry in self._entries[:depth]:
            if not entry.open:
                entry.open = True
                self._headings.append(_Heading(1000, entry.term.text, entry.term.line))
                for block in entry.blocks:
                    yield from self._wait(block)

    def _close_entries(self, level: int) -> Iterator[Source]:
        while self._entries and len(self._entries) >= level:
            entry = self._entries.pop()
            if entry.open:
                self._headings.pop()
            else:
                yield from self._put(entry.item, len(self._entries))

    def _wait(self, block: Block) -> Iterator[Source]:
        for heading in self._headings:
            heading.used = True
        section = self._section() or self._title()
        joined = [*self._waiting, block]
        if section != self._waiting_for:
            yield from self._flush()
            self._waiting_for = section
        elif self._waiting and not PASSAGE.holds("\n".join(part.text for part in joined)):
            lead = self._waiting[-1]
            leads = lead.text.endswith(":") and len(self._waiting) > 1
            if leads:  # what introduces a list or an example goes with it
                self._waiting.pop()
            yield from self._flush()
            self._waiting = [lead] if leads else []
        self._waiting.append(block)

    def _flush(self) -> Iterator[Source]:
        waiting, self._waiting = self._waiting, []
        if waiting:
            yield from _cut(waiting, self._file, self._waiting_for)

    def _section(self) -> str:
        """The outermost and the two innermost headings, such as "npm config > Settings > fetch-retries"."""
        texts = [heading.text for heading in self._headings if heading.text]
        texts = [
            *(_short(text, HEADING) for text in texts[:-1]),
            *(_short(text, INNERMOST) for text in texts[-1:]),
        ]
        if texts and self._headings[0].level > 1 and (title := self._title()):
            texts.insert(0, title)
        texts = [text for at, text in enumerate(texts) if at == 0 or text != texts[at - 1]]
        return " > ".join([*texts[:1], *texts[1:][-2:]])

    def _title(self) -> str:
        """The name of the file, where it says something."""
        name = PurePath(self._file.removesuffix(".gz")).stem
        return "" if name.lower() in UNTELLING else re.sub(r"[-_]+", " ", name)


def _cut(blocks: Sequence[Block], file: str, section: str) -> Iterator[Source]:
    """The passages of blocks that stand together, each with the lines that its words stand on."""
    lines, before = _lines(blocks), 0
    for text in cut("\n".join(block.text for block in blocks), PASSAGE):
        line = next(line for words, line in reversed(lines) if words <= before)
        after = before + len(text.split())
        inside = tuple((words - before, line) for words, line in lines if before < words < after)
        yield Source(text, file, line, section=section, lines=inside)
        before = after


def _lines(blocks: Iterable[Block]) -> tuple[tuple[int, int], ...]:
    """Where each line of the blocks begins in their joined text: (words before it, its number)."""
    lines: list[tuple[int, int]] = []
    before = 0
    for block in blocks:
        for words, line in ((0, block.line), *block.lines):
            if not lines or lines[-1][1] != line:
                lines.append((before + words, line))
        before += len(block.text.split())
    return tuple(lines)


def _short(heading: str, most: int) -> str:
    words = heading.split()
    return " ".join(words[:most]) + ("…" if len(words) > most else "")
