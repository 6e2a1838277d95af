"""Passages of a corpus: chunks of documents, as training and as evidence.

A passage holds neighbouring blocks of one section, up to 150 words, and knows its headings. A definition of more than
40 words is a section of its own, with its term as the heading. Statements (lines of a list of facts, rows of data)
are passages of their own.
"""

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from kcard.training.duplicates import Fingerprints, fingerprint
from kcard.training.epochs import Lazy, Spool, block_of
from kcard.training.readers.files import Block
from kcard.types import Source

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["PASSAGE", "Documents", "Size", "count_words", "cut", "passages", "rejoin", "sentences"]


# Text cut into pieces of a certain size, at the borders of lines and sentences.

# Scripts that put no blank between words: two Chinese characters, or four Thai letters, weigh as much as a word.
DENSE = re.compile("[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
UNSPACED = re.compile("[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff]")
END = re.compile("(?<=[。！？।॥؟۔\u104b\u17d4])(?![」』”’»）)])")
PAUSES = (", ", "; ", ": ", " – ", " — ", "，", "、", "；", "،", "؛")
UNBROKEN = 480  # characters without a blank: no sentences are sought in them
JOINER = "\u200d"
MARKS = ("Mn", "Mc", "Me")
MODIFIERS = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
INVISIBLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Size:
    """At most so many words and characters."""

    words: int
    characters: int

    def holds(self, text: str) -> bool:
        return len(text) <= self.characters and count_words(text) <= self.words


def count_words(text: str) -> int:
    """Words between blanks; in scripts without blanks, what would weigh as much."""
    words = text.count(" ") + text.count("\n") + 1
    if not text.isascii():
        words += len(DENSE.findall(text)) // 2 + len(UNSPACED.findall(text)) // 4
    return words


def cut(text: str, size: Size) -> Iterator[str]:
    """Pieces that hold as many whole lines, or else whole sentences, as `size` allows; a longer sentence in parts.

    A line and those indented deeper below it, such as an option and what it does, stay together where `size` holds all.
    Within a line white space becomes single blanks, unless the line is indented; no word is lost.
    """
    text = _clean(text)
    if not text:
        return
    if size.holds(text):
        yield text
        return
    lines = text.split("\n")
    if len(lines) > 1:
        yield from _packed(_entries(lines, size), size, "\n")
    else:
        yield from _packed(_sentences(text), size, " ")


def sentences(text: str, size: Size) -> Iterator[str]:
    """Each line that `size` holds, the sentences of a longer one, and an overlong sentence in parts."""
    for line in _clean(text).split("\n"):
        if line.strip():
            for sentence in [line] if size.holds(line) else _sentences(line):
                yield from [sentence] if size.holds(sentence) else _pieces(sentence, size)


def _entries(lines: Sequence[str], size: Size) -> Iterator[str]:
    """Lines with those that are indented deeper below them; where `size` does not hold that, the same of these."""
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    least = min(indents)
    starts = [at for at, indent in enumerate(indents) if indent == least or at == 0]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        entry = "\n".join(lines[start:end])
        if end - start == 1 or size.holds(entry):
            yield entry
        else:
            first, *deeper = _entries(lines[start + 1 : end], size)
            lead = f"{lines[start]}\n{first}"
            yield from [lead, *deeper] if size.holds(lead) else [lines[start], first, *deeper]


def _packed(parts: Iterable[str], size: Size, blank: str) -> Iterator[str]:
    """Neighbours joined as long as `size` holds them."""
    gathered = ""
    for part in parts:
        if gathered and size.holds(joined := gathered + blank + part):
            gathered = joined
            continue
        if gathered:
            yield gathered
        *whole, gathered = [part] if size.holds(part) else [*cut_line(part, size)]
        yield from whole
    if gathered:
        yield gathered


def cut_line(line: str, size: Size) -> Iterator[str]:
    """A line in pieces: its sentences packed, an overlong one in parts."""
    parts = [*_sentences(line)]
    yield from _packed(parts, size, " ") if len(parts) > 1 else _pieces(line, size)


def _sentences(text: str) -> Iterator[str]:
    """By the full stops of all scripts; a text without blanks or stops is left whole."""
    from kcard.text import split_sentences

    for part in [text] if text.isascii() else END.split(text):
        if max(map(len, part.split(" "))) > UNBROKEN:
            yield part.strip()
        else:
            yield from split_sentences(part)


def _clean(text: str) -> str:
    """Single blanks within lines, no empty lines, no control characters, and nothing that UTF-8 can't hold (half a
    surrogate pair)."""
    if not text.isprintable():
        text = INVISIBLE.sub(" ", text.expandtabs()).encode("utf-8", "replace").decode("utf-8")
    if "\n" not in text:
        return " ".join(text.split())
    lines = (line.rstrip() for line in text.split("\n"))
    return "\n".join(line if line[0] == " " else " ".join(line.split()) for line in lines if line).strip("\n")


def _pieces(sentence: str, size: Size) -> Iterator[str]:
    """Cut an overlong sentence at the last clause border that fits, else at a word, else between characters."""
    rest = sentence
    while not size.holds(rest):
        head = _head(rest, size)
        half = len(head) // 2
        at = max(head.rfind(mark, half) for mark in PAUSES)
        at = at + 1 if at > 0 else head.rfind(" ", half)
        at = at if at > 0 else _between_characters(rest, len(head))
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest


def _head(text: str, size: Size) -> str:
    """The longest beginning that fits."""
    low, high = 1, min(len(text), size.characters)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size.holds(text[:middle]) else (low, middle - 1)
    return text[:low]


def _between_characters(text: str, at: int) -> int:
    """The place at or before `at` that parts no accent, vowel sign or joined emoji from its character."""
    for place in range(at, at // 2, -1):
        joined = text[place - 1] == JOINER or text[place] == JOINER
        if not joined and unicodedata.category(text[place]) not in MARKS and text[place] not in MODIFIERS:
            return place
    return at


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


# Whole documents, as causal language modelling reads them: a file of prose, or one row of a table.
#
# A card is trained to write on, so what follows a sentence in the text follows it here (Knowledge Card, section 2.1).

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

    def of(self, accepts: Callable[[Source], bool]) -> Sequence[str]:
        """Those of whose passages one is wanted."""
        chosen = array("Q", (n for n in self._kept if any(map(accepts, self._passages(n)))))
        return Lazy(len(chosen), lambda index: self._text(chosen[index]))

    def _text(self, number: int) -> str:
        return "\n".join(block.text for _, block in self._read(number) if block.text.strip())

    def _passages(self, number: int) -> Iterator[Source]:
        rows = [*self._read(number)]
        return passages((block for _, block in rows), rows[0][0])

    def _read(self, number: int) -> Iterator[tuple[str, Block]]:
        for at in range(self._starts[number], self._starts[number + 1]):
            if not self._dropped[at]:
                yield block_of(self._blocks[at])


def rejoin(sources: Iterable[Source]) -> Iterator[str]:
    """The documents that a card's passages were cut from, as far as these tell: those of one file that follow each
    other, without headings."""
    for _, group in groupby(sources, key=lambda passage: passage.file):
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
