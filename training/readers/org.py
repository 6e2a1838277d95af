"""Org (.org): converted into Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence

from kcard.training.readers.files import Block, Document
from kcard.training.readers.markdown_writer import (
    MAX_HEADING_LEVEL,
    STRUCK,
    STRUCK_END,
    Line,
    escaped,
    markdown_table,
    numbered_blocks,
    paragraph,
    without_struck_words,
)
from kcard.training.readers.markup import front_fields
from kcard.training.readers.text import lines

FIELD = re.compile(r"#\+(title|author|date|description|keywords):\s*(.+)", re.IGNORECASE)
HEADING = re.compile(r"(\*+)\s+(.*?)(?:\s+:([\w@#%:]+):)?\s*$")
BLOCK = re.compile(r"\s*#\+(begin|end)_(\w+)", re.IGNORECASE)
CODE = ("src", "example", "export")
DRAWER = re.compile(r"\s*:(PROPERTIES|LOGBOOK|CLOCK|[A-Z]+):\s*$")
RULE = re.compile(r"\s*\|[-+:\s|]*-[-+:\s|]*\|?\s*$")
COLUMN_WIDTH = re.compile(r"<[lcr]?\d*>|")
ITEM = re.compile(r"(\s*)(?:[-+]|\s\*|(\d+)[.)])\s+(?:\[([ xX-])\]\s+)?(.*)")
EMPHASIS = re.compile(r"(?<![\w*/_=~+])([*/_])(?=\S)([^*/_\n]*?\S)\1(?![\w*/_=~+])")
CODE_MARKS = re.compile(r"(?<![\w*/_=~+])([=~])(?=\S)([^=~\n]*?\S)\1(?![\w*/_=~+])")
PRIORITY = re.compile(r"\[#[A-Z\d]\]\s*")
STRUCK_SPAN = re.compile(r"(?<![\w+])\+(?=\S)([^+\n]*\S)\+(?![\w+])")
LINK = re.compile(r"\[\[[^\[\]]*\]\[([^\[\]]*)\]\]")
BARE_LINK = re.compile(r"\[\[(?:\w+:)?([^\[\]]*)\]\]")
NOTE = re.compile(r"\[fn:[^\[\]]*\]")
CHECK_BOXES = {" ": "[ ] ", "-": "[ ] ", "x": "[x] ", "X": "[x] "}
CAPTION = re.compile(r"\s*#\+caption:\s*", re.IGNORECASE)
UNPUBLISHED_TAGS = {"noexport", "ARCHIVE"}  # of sections that are not exported


def read_org(document: Document) -> Iterator[Block]:
    source = list(lines(document.path))
    fields = dict[str, str]()
    for _, line in source:
        field = FIELD.match(line)
        if field is not None:
            fields.setdefault(field[1].lower(), without_struck_words(org_text(field[2].strip())))
    yield from front_fields(fields, 1)
    yield from numbered_blocks(list(org_lines(source, "title" in fields)), document.skips)


def org_lines(source: Iterable[Line], has_title: bool) -> Iterator[Line]:
    unpublished = 0  # level of the section that is left out
    is_code = is_drawer = is_comment = False
    table: list[Line] = []
    for number, line in source:
        is_row = line.lstrip().startswith("|")
        if table and not is_row:
            yield from org_table(table)
            table = []
        heading = None
        if line.startswith("*") and not is_code:
            heading = HEADING.match(" ".join(line.split()))
        if heading is not None and (not unpublished or len(heading[1]) <= unpublished):
            unpublished = 0
            if is_unpublished(heading):
                unpublished = len(heading[1])
        if unpublished:
            continue
        block = BLOCK.match(line)
        if block is not None:
            begins, kind = block[1].lower() == "begin", block[2].lower()
            if kind in CODE:
                is_code = begins
                yield number, "```"
            elif kind == "comment":
                is_comment = begins
        elif is_code:
            yield number, line.replace("```", "` ` `")
        elif is_comment:
            continue
        elif is_drawer:
            is_drawer = line.strip().upper() != ":END:"
        elif DRAWER.match(line):
            is_drawer = True
        elif heading is not None:
            level = min(len(heading[1]) + has_title, MAX_HEADING_LEVEL)
            yield number, f"{'#' * level} {escaped(org_text(PRIORITY.sub('', heading[2])))}"
        elif is_row:
            table.append((number, line))
        elif CAPTION.match(line):
            yield number, escaped(org_text(CAPTION.sub("", line)))
            yield number, ""
        elif not re.match(r"\s*#(?:\+|\s|$)", line):
            yield number, org_line(line)
    if table:
        yield from org_table(table)


def is_unpublished(heading: re.Match[str]) -> bool:
    """Return whether the section under a heading is not exported."""
    tags = (heading[3] or "").split(":")
    return not UNPUBLISHED_TAGS.isdisjoint(tags) or heading[2].startswith("COMMENT")


def org_line(line: str) -> str:
    item = ITEM.match(line)
    if item is None:
        return paragraph(org_text(line))
    indent, count, state, text = item.groups()
    mark = f"{count}." if count else "-"
    words = escaped(org_text(text.replace(" :: ", ": ", 1)))
    return f"{indent}{mark} {CHECK_BOXES.get(state, '')}{words}"


def org_table(rows: Sequence[Line]) -> Iterator[Line]:
    grid: list[list[str]] = []
    numbers: list[int] = []
    has_names = False
    for number, line in rows:
        if RULE.match(line):
            has_names = has_names or len(grid) == 1
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not all(map(COLUMN_WIDTH.fullmatch, cells)):
            grid.append([escaped(org_text(cell)) for cell in cells])
            numbers.append(number)
    yield from markdown_table(grid, has_names, numbers)


def org_text(text: str) -> str:
    text = BARE_LINK.sub(r"\1", LINK.sub(r"\1", NOTE.sub("", text)))
    text = STRUCK_SPAN.sub(f"{STRUCK}\\1{STRUCK_END}", text)
    return CODE_MARKS.sub(r"\2", EMPHASIS.sub(r"\2", text))
