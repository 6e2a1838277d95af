"""Documents that are converted into Markdown, each line with its number in the file."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kcard.training.readers.files import Block, SkipReport
from kcard.training.readers.markup import markdown_blocks

Line = tuple[int, str]  # the number of a line in the file, and its text

# Signs of Markdown; struck-through words stand between STRUCK and STRUCK_END until the others are escaped.
MARKS = re.compile(r"([\\`*_\[\]<>#|~&!])")
FIRST_MARK = re.compile(r"(\d*)([-+=:.)])")  # of a list, a definition or a line under a heading
STRUCK, STRUCK_END = "\ue000", "\ue001"
MAX_HEADING_LEVEL = 6


def escaped(text: str) -> str:
    """Return a text in which no sign means anything in Markdown."""
    text = MARKS.sub(r"\\\1", text)
    return text.replace(STRUCK, "~~").replace(STRUCK_END, "~~")


def without_struck_words(text: str) -> str:
    return re.sub(f"{STRUCK}[^{STRUCK_END}]*{STRUCK_END}", "", text).strip()


def paragraph(text: str) -> str:
    """Return the line of a paragraph, escaped, also where it begins as an item of a list does."""
    words = text.strip()
    mark = FIRST_MARK.match(words)
    if mark is None:
        return escaped(words)
    return f"{mark[1]}\\{mark[2]}{escaped(words[mark.end() :])}"


def numbered_blocks(rows: Sequence[Line], skips: SkipReport) -> Iterator[Block]:
    """Yield the blocks of lines of Markdown, by their numbers."""
    numbers = [number for number, _ in rows]
    texts = [text for _, text in rows]
    for block in markdown_blocks(enumerate(texts, 1), skips):
        places = tuple((words, numbers[line - 1]) for words, line in block.lines)
        yield replace(block, line=numbers[block.line - 1], lines=places)


def markdown_table(grid: Sequence[Sequence[str]], has_names: bool, numbers: Sequence[int]) -> Iterator[Line]:
    """Yield the rows of a table, whose texts are in Markdown, after its names or empty ones."""
    width = max(map(len, grid), default=0)
    if not width:
        return
    names: Sequence[str] = ()
    if has_names:
        names = grid[0]
    yield numbers[0], ""
    yield numbers[0], table_row([*names, *[""] * (width - len(names))])
    yield numbers[0], "|" + "---|" * width
    first = int(has_names)
    for number, cells in zip(numbers[first:], grid[first:], strict=True):
        yield number, table_row(cells)
    yield numbers[-1], ""


def table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
