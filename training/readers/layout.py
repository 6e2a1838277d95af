"""Parse text by its layout: underlined headings, indentation, bullets, blank lines.

This covers manuals, Info files, reStructuredText and rendered man pages. The lines of a paragraph are joined; lines
that look like code keep their breaks; the rows of tables become items.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from kcard.training.readers.drawn_tables import find_tables
from kcard.training.readers.files import Block
from kcard.training.readers.option_lists import IndentedLine, OptionList, find_option_lists

MAX_PARAGRAPH_LINES = 500  # for text without blank lines
UNDERLINE = re.compile(r"([=*~^\"'`#.:+-])\1{2,}")
RULE = re.compile(r"[-=_*~#+.|: ]{4,}")
BULLET = re.compile(r"(?:[-*+•·o]|(?P<number>\(?(?:\d{1,3}|[a-z])[.)]))\s+(?=\S)")
NUMBERED_HEADING = re.compile(r"(?:chapter\s+|appendix\s+)?(\d+(?:\.\d+)*)\.?\s+\S", re.IGNORECASE)
COUNT = re.compile(r"\d+\s")  # "3 CTRL-A", where "3. Editing" and "3.1 Undo" are titles
COLUMN = re.compile(r"(?<=\S)(?: {3,}|\t+)(?=\S)")  # between a term and its meaning, side by side
SENTENCE = re.compile(r"[.!:;,][\"'”’»)\]]*$")
GAPS = re.compile(r"\S {3,}\S|\S\t+\S")
PROMPT = re.compile(r"(?:[$#%>]|>>>) ")
CODE = re.compile(r"[{}$|\\<>;=]|^\s*[#%>]|\w\(|--\w|/\w+/")
MAX_HEADING_WORDS = 12
MAX_TERM_WORDS = 12
MIN_PROSE_COLUMNS, MAX_PROSE_COLUMNS = 45, 200  # shorter or longer lines are not wrapped prose
PLAIN_HEADING_LEVEL = 9  # below those of underlined headings


def blocks(numbered: Iterable[tuple[int, str]], literal: Container[int] = ()) -> Iterator[Block]:
    """Yield the blocks of numbered lines. `literal`: the numbers of lines known to be code."""
    layout = _Layout()
    for paragraph in paragraphs_of(numbered):
        options = find_option_lists(paragraph)
        if paragraph[0].number in literal and _line_count(options) <= len(paragraph) / 2:
            yield from layout.leave(paragraph[0].indent, paragraph[0].number)
            yield _code(paragraph)
            continue
        # The lines around a list of options are paragraphs of their own, and so are those around a table.
        at = 0
        for listed in options:
            yield from layout.lines_above(paragraph[at : listed.start], listed)
            yield from layout.options(listed)
            at = listed.end
        yield from layout.lines(paragraph[at:])
    yield from layout.leave(-1, 0)


def is_help(numbered: Iterable[tuple[int, str]]) -> bool:
    """Return whether most lines are those of lists of options, as `--help` prints them."""
    lines = in_lists = 0
    for paragraph in paragraphs_of(numbered):
        lines += len(paragraph)
        in_lists += _line_count(find_option_lists(paragraph))
    return in_lists > lines / 2


def _line_count(lists: Sequence[OptionList]) -> int:
    return sum(listed.end - listed.start for listed in lists)


class _Layout:
    """Parser state: the characters that underline headings, in order; the open terms, by indentation, and that of the
    last list of options."""

    def __init__(self) -> None:
        self._underlines: list[str] = []
        self._terms: list[int] = []
        self._options_indent: int | None = None

    def leave(self, indent: int, line: int) -> Iterator[Block]:
        """End the definitions whose terms have this indentation or a deeper one."""
        while self._terms and self._terms[-1] >= indent:
            self._terms.pop()
            yield Block("term", "", line, len(self._terms) + 1)

    def options(self, listed: OptionList) -> Iterator[Block]:
        """Yield options as terms. Lists further indented than the one before are of the same level."""
        indent = listed.indent
        if self._options_indent is not None and self._options_indent in self._terms:
            indent = min(indent, self._options_indent)
        for option in listed.options:
            yield from self.leave(indent, option.line)
            yield Block("term", option.term, option.line, len(self._terms) + 1)
            self._terms.append(indent)
            yield _prose("text", option.explanation)
        self._options_indent = indent

    def lines_above(self, lines: Sequence[IndentedLine], listed: OptionList) -> Iterator[Block]:
        """Yield the lines before a list of options in its paragraph, of which the last may be its title."""
        title = None
        if (
            lines
            and lines[-1].indent < listed.indent
            and _may_be_term(lines[-1])
            and not lines[-1].text.isupper()
        ):
            *lines, title = lines
        yield from self.lines(lines)
        if title is not None:
            yield from self.leave(title.indent, title.number)
            yield Block("term", " ".join(title.text.split()), title.number, len(self._terms) + 1)
            self._terms.append(title.indent)
            self._options_indent = None

    def lines(self, lines: Sequence[IndentedLine]) -> Iterator[Block]:
        """Yield the rows of tables, and the lines around them as paragraphs."""
        at = 0
        for table in find_tables([" " * line.indent + line.text for line in lines]):
            yield from self.paragraph(lines[at : table.start])
            yield from self.leave(lines[table.start].indent, lines[table.start].number)
            for row, text in table.rows:
                yield Block("item", text, lines[row].number)
            at = table.end
        yield from self.paragraph(lines[at:])

    def paragraph(self, lines: Sequence[IndentedLine]) -> Iterator[Block]:
        if not lines:
            return
        heading, rest = self.heading(lines)
        if heading is not None:
            yield from self.leave(-1, heading.line)
            yield heading
        if rest:
            yield from self.leave(rest[0].indent, rest[0].number)
            yield from self.body(rest)

    def heading(self, lines: Sequence[IndentedLine]) -> tuple[Block | None, Sequence[IndentedLine]]:
        """Return the heading at the paragraph's beginning, if any, and the other lines."""
        below = [line for line in lines if not RULE.fullmatch(line.text)]
        if not below:
            return None, []
        first = below[0]
        is_ruled = first is not lines[0]
        title = " ".join(first.text.split())
        after = lines[lines.index(first) + 1 :]
        if after and UNDERLINE.fullmatch(after[0].text) and len(after[0].text) >= 0.6 * len(first.text):
            mark = after[0].text[0]
            if mark not in self._underlines:
                self._underlines.append(mark)
            level = 1 + self._underlines.index(mark)
            rest = [line for line in below[1:] if line is not after[0]]
            return Block("heading", title, first.number, level), rest
        is_alone = len(below) == 1
        numbered = NUMBERED_HEADING.match(first.text)
        is_left = first.indent == 0 or (is_alone and numbered and not COUNT.match(first.text))
        if not is_left or not (is_alone or below[1].indent):
            return None, below
        letters = sum(map(str.isalpha, title))
        if SENTENCE.search(title) or title.count(" ") >= MAX_HEADING_WORDS or not letters:
            return None, below
        # A heading is in capitals; as a paragraph of its own, it may instead be numbered or have a rule above.
        is_in_capitals = title.isupper() and letters > 3
        if not is_in_capitals and not (is_alone and (is_ruled or NUMBERED_HEADING.match(title))):
            return None, below
        level = PLAIN_HEADING_LEVEL
        if numbered is not None:
            level += numbered[1].count(".")
        return Block("heading", title, first.number, level), below[1:]

    def body(self, lines: Sequence[IndentedLine]) -> Iterator[Block]:
        """Yield a paragraph, the items of a list, a term with its definition, or code."""
        if not lines:
            return
        columns = columns_of(lines)
        terms = _terms(lines)
        if is_list(lines):
            for item in items_of(lines):
                yield _prose("item", item)
        elif columns:
            for term, meaning in columns:
                yield Block("term", term, meaning[0].number, len(self._terms) + 1)
                yield _prose("text", meaning)
                yield Block("term", "", meaning[0].number, len(self._terms) + 1)
        elif terms:
            named = ", ".join(" ".join(line.text.split()) for line in lines[:terms])
            yield Block("term", named, lines[0].number, len(self._terms) + 1)
            self._terms.append(lines[0].indent)
            yield from self.body(lines[terms:])
        elif is_code(lines):
            yield _code(lines)
        else:
            yield _prose("text", lines)


def is_list(lines: Sequence[IndentedLine]) -> bool:
    """Return whether the first line has a bullet, and so has every line that is no further indented."""
    outer = [line for line in lines if line.indent <= lines[0].indent]
    return all(BULLET.match(line.text) for line in outer)


def paragraphs_of(numbered: Iterable[tuple[int, str]]) -> Iterator[list[IndentedLine]]:
    """Yield runs of lines without a blank one."""
    gathered: list[IndentedLine] = []
    for number, raw in numbered:
        text = raw.expandtabs().rstrip()
        if text.strip():
            gathered.append(IndentedLine(number, len(text) - len(text.lstrip()), text.strip()))
        if gathered and (not text.strip() or len(gathered) == MAX_PARAGRAPH_LINES):
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def items_of(lines: Sequence[IndentedLine]) -> Iterator[list[IndentedLine]]:
    gathered: list[IndentedLine] = []
    for line in lines:
        mark = BULLET.match(line.text)
        if mark and gathered:
            yield gathered
            gathered = []
        if mark and mark["number"] is None:
            line = IndentedLine(line.number, line.indent, f"- {line.text[mark.end() :]}")
        gathered.append(line)
    yield gathered


def _terms(lines: Sequence[IndentedLine]) -> int:
    """Return how many lines at the beginning are terms that the deeper indented lines after them define."""
    least = lines[0].indent
    count = 0
    while count < len(lines) and lines[count].indent <= least + 1:
        if not _may_be_term(lines[count]):
            return 0
        count += 1
    if count == len(lines) or any(line.indent <= least for line in lines[count:]):
        return 0
    return count


def _may_be_term(line: IndentedLine) -> bool:
    return line.text.count(" ") < MAX_TERM_WORDS and not SENTENCE.search(line.text)


def columns_of(lines: Sequence[IndentedLine]) -> list[tuple[str, list[IndentedLine]]]:
    """Parse terms on the left with their meaning wrapped in a column on the right: (term, lines of its meaning); empty
    for other text."""
    left = min(line.indent for line in lines)
    entries: list[tuple[str, list[IndentedLine]]] = []
    column = 0
    for line in lines:
        if line.indent > left:
            if not entries or line.indent < column - 2:
                return []
            entries[-1][1].append(line)
            continue
        term, *rest = COLUMN.split(line.text)
        if len(rest) != 1 or term.count(" ") >= MAX_TERM_WORDS / 2:
            return []
        begun = line.indent + line.text.index(rest[0], len(term))
        if entries and abs(begun - column) > 2:
            return []
        column = begun
        entries.append((term, [IndentedLine(line.number, begun, rest[0])]))
    is_wrapped = len(lines) > len(entries)
    if not is_wrapped or left >= column:
        return []
    return entries


def is_code(lines: Sequence[IndentedLine]) -> bool:
    """Return whether lines keep their breaks: code, a table, an address. Prose has long lines or is wrapped."""
    if len(lines) == 1:
        return False
    if PROMPT.match(lines[0].text):
        return True
    with_gaps = coded = 0
    is_wrapped = False
    for line, following in pairwise([*lines, IndentedLine(0, 0, "")]):
        with_gaps += bool(GAPS.search(line.text))
        coded += bool(CODE.search(line.text))
        is_wrapped = is_wrapped or (not SENTENCE.search(line.text) and following.text[:1].islower())
    if with_gaps > len(lines) / 2:
        return True
    longest = max(len(line.text) for line in lines[:-1])
    if longest > MAX_PROSE_COLUMNS or (longest < MIN_PROSE_COLUMNS and not is_wrapped):
        return True
    indents = {line.indent for line in lines}
    return coded > len(lines) / 2 and len(indents) > 1


def _prose(kind: Literal["text", "item"], lines: Sequence[IndentedLine]) -> Block:
    """Join lines into one text. A word divided at a line's end loses its hyphen in justified text, which has runs of
    blanks; elsewhere the hyphen stays."""
    is_justified = any("  " in line.text for line in lines)
    words: list[str] = []
    begun = []
    for line in lines:
        begun.append((len(words), line.number))
        first, *rest = line.text.split()
        last = words[-1] if words else ""
        if last.endswith("-") and last[-2:-1].isalpha() and first[0].islower():
            if is_justified:
                last = last[:-1]
            words[-1] = last + first
        else:
            words.append(first)
        words += rest
    return Block(kind, " ".join(words), lines[0].number, lines=tuple(begun[1:]))


def _code(lines: Sequence[IndentedLine]) -> Block:
    least = min(line.indent for line in lines)
    texts: list[str] = []
    places: list[tuple[int, int]] = []
    words = 0
    for line in lines:
        places.append((words, line.number))
        words += len(line.text.split())
        texts.append(" " * (line.indent - least) + line.text)
    return Block("code", "\n".join(texts), lines[0].number, lines=tuple(places[1:]))
