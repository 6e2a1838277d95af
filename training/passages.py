"""Cut documents into passages, for training and as evidence.

A passage consists of neighbouring blocks of one section, up to 150 words, and has its headings. A definition of more
than 40 words is a section of its own, with its term as the heading. Statements (lines of a list of facts, rows of
data) are passages of their own.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from kcard.training.readers.files import CONTINUED_LEVEL, Block
from kcard.types import Source

# Cutting text into pieces of a certain size, at the ends of lines and sentences.

# Scripts without blanks between words: two Chinese characters, or four Thai letters, count as a word.
IDEOGRAPHS = re.compile(
    "[\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
UNSPACED_LETTERS = re.compile("[\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff]")
FOREIGN_STOPS = re.compile("(?<=[。！？।॥؟۔\u104b\u17d4])(?![」』”’»）)])")
PAUSES = (", ", "; ", ": ", " – ", " — ", "，", "、", "；", "،", "؛")
MAX_INDENTATIONS = 50  # indentations within one another that are told apart
MAX_WORD_CHARACTERS = 480  # characters without a blank, in which no sentences are searched
JOINER = "\u200d"
SOFT_HYPHEN = "\u00ad"
MARKS = ("Mn", "Mc", "Me")
MODIFIERS = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
CONTROL_START = re.compile("^(?:[\x00-\x09\x0b-\x1f\x7f-\x9f] *)+", re.MULTILINE)  # is no indentation


@dataclass(frozen=True)
class Size:
    """The maximum size of a text, in words and in characters."""

    words: int
    characters: int

    def holds(self, text: str) -> bool:
        return len(text) <= self.characters and count_words(text) <= self.words


def count_words(text: str) -> int:
    """Count the words between blanks; in scripts without blanks, an equivalent number of characters."""
    words = text.count(" ") + text.count("\n") + 1
    if not text.isascii():
        words += len(IDEOGRAPHS.findall(text)) // 2 + len(UNSPACED_LETTERS.findall(text)) // 4
    return words


def cut(text: str, size: Size) -> Iterator[str]:
    """Yield pieces of as many whole lines, or else whole sentences, as `size` allows; a longer sentence is split.

    A line and the deeper indented lines below it, such as an option and its description, stay together if they fit.
    White space within a line is normalised to single blanks, unless the line is indented; no word is lost.
    """
    text = _clean(text)
    if not text:
        return
    if size.holds(text):
        yield text
        return
    lines = text.split("\n")
    if len(lines) > 1:
        yield from _pack(_entries(lines, size), size, "\n")
    else:
        yield from _pack(_sentences(text), size, " ")


def sentences(text: str, size: Size) -> Iterator[str]:
    """Yield each line that fits into `size`, the sentences of a longer one, and the parts of an overlong sentence."""
    for indented in _clean(text).split("\n"):
        line = indented.strip()
        if not line:
            continue
        if size.holds(line):
            yield line
            continue
        for sentence in _sentences(line):
            if size.holds(sentence):
                yield sentence
            else:
                yield from _split_sentence(sentence, size)


def _entries(lines: Sequence[str], size: Size, depth: int = 0) -> Iterator[str]:
    """Yield lines with the deeper indented lines below them; where these don't fit, they are divided recursively.

    Below MAX_INDENTATIONS indentations each line is alone.
    """
    if depth == MAX_INDENTATIONS:
        yield from lines
        return
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    least = min(indents)
    starts = [at for at, indent in enumerate(indents) if indent == least or at == 0]
    for start, end in pairwise([*starts, len(lines)]):
        entry = "\n".join(lines[start:end])
        if end - start == 1 or size.holds(entry):
            yield entry
        else:
            first, *deeper = _entries(lines[start + 1 : end], size, depth + 1)
            lead = f"{lines[start]}\n{first}"
            if size.holds(lead):
                yield lead
            else:
                yield lines[start]
                yield first
            yield from deeper


def _pack(parts: Iterable[str], size: Size, blank: str) -> Iterator[str]:
    """Join neighbouring parts as long as they fit into `size`."""
    gathered = ""
    for part in parts:
        if gathered:
            joined = gathered + blank + part
            if size.holds(joined):
                gathered = joined
                continue
            yield gathered
        if size.holds(part):
            gathered = part
        else:
            *whole, gathered = cut_line(part, size)
            yield from whole
    if gathered:
        yield gathered


def cut_line(line: str, size: Size) -> Iterator[str]:
    """Cut a line into pieces of whole sentences; an overlong sentence is split."""
    parts = list(_sentences(line))
    if len(parts) > 1:
        yield from _pack(parts, size, " ")
    else:
        yield from _split_sentence(line, size)


def _sentences(text: str) -> Iterator[str]:
    """Split at the full stops of all scripts; a text without blanks or stops stays whole."""
    from kcard.text import split_sentences

    for part in FOREIGN_STOPS.split(text):
        if max(map(len, part.split(" "))) > MAX_WORD_CHARACTERS:
            yield part.strip()
        else:
            yield from split_sentences(part)


def _clean(text: str) -> str:
    """Normalise blanks within lines, and remove empty lines, control characters, soft hyphens and lone surrogates."""
    if not text.isprintable():
        text = CONTROL_START.sub("", text.replace(SOFT_HYPHEN, "").expandtabs())
        text = CONTROL.sub(" ", text).encode("utf-8", "replace").decode("utf-8")
    if "\n" not in text:
        return " ".join(text.split())
    lines: list[str] = []
    for line in text.split("\n"):
        line = line.rstrip()
        if not line.startswith(" "):
            line = " ".join(line.split())
        if line:
            lines.append(line)
    return "\n".join(lines)


def _split_sentence(sentence: str, size: Size) -> Iterator[str]:
    """Cut an overlong sentence at the last clause border that fits, else at a word, else between characters."""
    sentence = sentence.strip()
    start = 0
    while True:
        rest = sentence[start : start + size.characters + 1]
        if size.holds(rest):
            break
        # The longest beginning that fits; one character does in any case.
        lengths = range(2, min(len(rest), size.characters) + 1)
        head = rest[: 1 + bisect_left(lengths, True, key=lambda length: not size.holds(rest[:length]))]
        half = len(head) // 2
        at = max(head.rfind(mark, half) for mark in PAUSES) + 1
        if at <= 1:
            at = head.rfind(" ", half)
        if at <= 0:
            at = len(head)
            while at > half and not _may_be_cut(rest, at):
                at -= 1
            if at == half:
                at = len(head)
        yield rest[:at].strip()
        start += at
        while sentence[start : start + 1].isspace():
            start += 1
    if rest:
        yield rest


def _may_be_cut(text: str, at: int) -> bool:
    """Return whether a cut separates no accent, vowel sign or joined emoji from its character."""
    before, after = text[at - 1], text[at]
    if JOINER in (before, after) or after in MODIFIERS:
        return False
    return unicodedata.category(after) not in MARKS


PASSAGE = Size(words=150, characters=1200)
MAX_ENTRY_WORDS = 40  # words
MIN_CONTENTS_LINES = 3  # lines of a table of contents at least
NUMBER = re.compile(r"^[\W_]*(?:\d+(?:\.\d+)*[.)]?(?![^\W\d_])|[A-Z]\.(?=\s))?")  # "- 1.2. Title"
PAGE = re.compile(
    r"(?:\s+\|[^\s|]+\||(?:[.…·]\s?){3,}\s*\w+|\s{2,}\d+)\s*$"
)  # "Title |tag|", "Title .... 12"
PAGE_CHARACTERS = 200  # at the end of a line, in which its page number is searched
SIGNS = re.compile(r"[\W_]+")
MAX_OUTER_HEADING_WORDS = 12
MAX_INNER_HEADING_WORDS = 30  # of the innermost heading, which may be a question
WORD_CHARACTERS = 40  # that a word of a heading may have on average
MIN_TEXT_HEADING_WORDS = 4  # minimum words of an empty section's heading, for it to be kept as text
GENERIC_FILE_NAMES = {"index", "readme", "text", "document", "passages", "main", "default"}


def passages(blocks: Iterable[Block], file: str) -> Iterator[Source]:
    """Yield the passages of one document, in order and without tables of contents; `file`: the name they give it."""
    blocks = [*blocks]
    last: dict[str, int] = {}  # the place of the last heading with each title
    for at, block in enumerate(blocks):
        if block.kind == "heading":
            last |= dict.fromkeys(_titles(block.text), at)

    def is_contents(row: tuple[int, Block]) -> bool:
        """Return whether a block consists only of headings that follow later."""
        at, block = row
        return block.kind in ("text", "item", "code") and all(
            any(last.get(title, -1) > at for title in _titles(line)) for line in block.text.split("\n")
        )

    grouping = _Grouping(file)
    for contents, group in groupby(enumerate(blocks), is_contents):
        run = [block for _, block in group]
        # A run of such lines is a table of contents.
        if contents and sum(block.text.count("\n") + 1 for block in run) >= MIN_CONTENTS_LINES:
            continue
        for block in run:
            yield from grouping.take(block)
    yield from grouping.end()


def _titles(line: str) -> tuple[str, ...]:
    """Return the letters and digits of a title, with its number and without it; its page number is left out."""
    title = line[:-PAGE_CHARACTERS] + PAGE.sub("", line[-PAGE_CHARACTERS:])
    with_number = SIGNS.sub("", title).casefold()
    without = SIGNS.sub("", NUMBER.sub("", title)).casefold()
    return tuple(filter(None, (with_number, without)))


@dataclass
class _Heading:
    """A heading; `used`: whether text follows under it."""

    level: int
    text: str
    line: int
    used: bool = False


@dataclass
class _Entry:
    """A term and its definition so far; `open`: it is long, so its blocks are passed on at once."""

    term: Block
    blocks: list[Block] = field(default_factory=list)
    open: bool = False

    @property
    def item(self) -> Block:
        words = ""
        for before, block in pairwise([self.term, *self.blocks]):
            words += ("\n" if "code" in (before.kind, block.kind) else " ") + block.text
        text = self.term.text
        if words:
            text += f":{words}"
        return Block("item", text, self.term.line, lines=_line_places([self.term, *self.blocks])[1:])


class _Grouping:
    """State of grouping blocks into passages: the headings over the next block, open definitions, and blocks that
    wait for others to join them."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._headings: list[_Heading] = []
        self._entries: list[_Entry] = []
        self._waiting: list[Block] = []
        self._waiting_for = ""  # the section of what waits

    def take(self, block: Block) -> Iterator[Source]:
        """Yield the passages that this block completes."""
        if block.kind == "heading":
            yield from self.close_entries(1)
            yield from self.leave(block.level)
            self._headings.append(_Heading(block.level, block.text, block.line))
        elif block.kind == "term":
            yield from self.close_entries(block.level)
            if block.text:
                # Many manuals write the colon themselves.
                self._entries.append(_Entry(replace(block, text=block.text.removesuffix(":"))))
        elif block.kind == "statement":
            yield from self.close_entries(1)
            yield from self.flush()
            section, file = block.section, block.file
            if section is None:
                section = self.section()
            if file is None:
                file = self._file
            yield from _cut_blocks([block], file, section)
        else:
            yield from self.put(block, len(self._entries))

    def end(self) -> Iterator[Source]:
        yield from self.close_entries(1)
        yield from self.leave(0)
        yield from self.flush()

    def leave(self, level: int) -> Iterator[Source]:
        """End the sections of this level and deeper; the heading of an empty one becomes text."""
        while self._headings and self._headings[-1].level >= level:
            heading = self._headings.pop()
            if not heading.used and count_words(heading.text) >= MIN_TEXT_HEADING_WORDS:
                yield from self.put(Block("text", heading.text, heading.line), 0)

    def put(self, block: Block, depth: int) -> Iterator[Source]:
        """Add a block to the definition at this depth; at depth 0, to the blocks that wait."""
        if depth == 0 or self._entries[depth - 1].open:
            yield from self.wait(block)
            return
        entry = self._entries[depth - 1]
        entry.blocks.append(block)
        if sum(count_words(part.text) for part in entry.blocks) > MAX_ENTRY_WORDS:
            # A long definition becomes a section, and so do those that contain it.
            for outer in self._entries[:depth]:
                if not outer.open:
                    outer.open = True
                    self._headings.append(_Heading(1000, outer.term.text, outer.term.line))
                    for part in outer.blocks:
                        yield from self.wait(part)

    def close_entries(self, level: int) -> Iterator[Source]:
        while self._entries and len(self._entries) >= level:
            entry = self._entries.pop()
            if entry.open:
                self._headings.pop()
            else:
                yield from self.put(entry.item, len(self._entries))

    def wait(self, block: Block) -> Iterator[Source]:
        for heading in self._headings:
            heading.used = True
        section = self.section() or self.title()
        joined = [*self._waiting, block]
        if section != self._waiting_for:
            yield from self.flush()
            self._waiting_for = section
        elif self._waiting and not PASSAGE.holds("\n".join(part.text for part in joined)):
            begins = self._begins_with(block)
            staying = self._waiting[begins:]
            self._waiting = self._waiting[:begins]
            yield from self.flush()
            self._waiting = staying
        self._waiting.append(block)

    def _begins_with(self, block: Block) -> int:
        """Return the number of waiting blocks that do not go into the next passage, which holds `block`: the earlier
        lines of its paragraph go there, and the introduction of a list or an example; never all of them."""
        count = len(self._waiting)
        at = count
        if block.level == CONTINUED_LEVEL:
            while at and self._waiting[at - 1].level == CONTINUED_LEVEL:
                at -= 1
            at = max(at - 1, 0)
        elif self._waiting[-1].text.endswith(":"):
            at -= 1
        return at or count

    def flush(self) -> Iterator[Source]:
        waiting, self._waiting = self._waiting, []
        if waiting:
            yield from _cut_blocks(waiting, self._file, self._waiting_for)

    def section(self) -> str:
        """Return the outermost and the two innermost headings, such as "npm config > Settings > fetch-retries"."""
        headings = [heading.text for heading in self._headings if heading.text]
        if not headings:
            return ""
        *outer, innermost = headings
        texts = [_shorten(text, MAX_OUTER_HEADING_WORDS) for text in outer]
        texts.append(_shorten(innermost, MAX_INNER_HEADING_WORDS))
        title = self.title()
        if title and self._headings[0].level > 1:
            texts.insert(0, title)
        first, *others = [text for text, _ in groupby(texts)]
        return " > ".join([first, *others[-2:]])

    def title(self) -> str:
        """Return the name of the file, if it is informative."""
        from kcard.text import file_title

        title = file_title(self._file)
        if title.lower() in GENERIC_FILE_NAMES:
            return ""
        return title


def _cut_blocks(blocks: Sequence[Block], file: str, section: str) -> Iterator[Source]:
    """Cut adjacent blocks into passages, each with the line numbers of its words."""
    lines, before = _line_places(blocks), 0
    starts = [words for words, _ in lines]
    for text in cut("\n".join(block.text for block in blocks), PASSAGE):
        after = before + len(text.split())
        first, end = bisect_right(starts, before), bisect_left(starts, after)
        inside = tuple((words - before, line) for words, line in lines[first:end])
        yield Source(text, file, lines[first - 1][1], section=section, lines=inside)
        before = after


def _line_places(blocks: Iterable[Block]) -> tuple[tuple[int, int], ...]:
    """Return where each line of the blocks begins in their joined text: (words before it, its number)."""
    lines: list[tuple[int, int]] = []
    before = 0
    for block in blocks:
        for words, line in ((0, block.line), *block.lines):
            if not lines or lines[-1][1] != line:
                lines.append((before + words, line))
        before += len(block.text.split())
    return tuple(lines)


def _shorten(heading: str, max_words: int) -> str:
    words = heading.split(maxsplit=max_words)
    text = " ".join(words[:max_words])
    max_characters = max_words * WORD_CHARACTERS
    if len(words) > max_words or len(text) > max_characters:
        text = f"{text[:max_characters]}…"
    return text
