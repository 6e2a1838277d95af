"""AsciiDoc (.adoc): converted into Markdown."""

import re
from collections.abc import Iterator, Sequence

from kcard.training.readers.files import Block, Document, SkipReport
from kcard.training.readers.markdown_writer import (
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
from kcard.training.readers.web_tables import grid_of

HEADING = re.compile(r"(={1,6}|#{1,6})\s+(\S.*)")
ATTRIBUTE = re.compile(r":(!?[\w-]+!?):(?:\s+(.*))?$")
AUTHOR = re.compile(r"([^\W\d_][^<>;:]*?)(?:\s*<[^<>]*>)?(?:;.*)?$")
REVISION = re.compile(r"v?([\d.]+)?(?:,\s*)?(\d[\d-]{7,9}|[^\W\d_]+ \d{1,2},? \d{4})?(?::.*)?$")
FIELDS = {"author": "author", "revdate": "date", "revnumber": "version", "description": "description",
               "keywords": "keywords"}  # fmt: skip
CODE = re.compile(r"(-{4,}|\.{4,}|`{3,}.*)$")
COMMENT = re.compile(r"/{4,}$")
FRAME = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--|\+{4,}|\+|'{3,}|<{3,})$")
OPTIONS = re.compile(r"\[([^\[\]]*)\]$")
SILENT = re.compile(r"(?:ifdef|ifndef|ifeval|endif|toc)::|\[\[[^\[\]]*\]\]$|//(?!/)")
ITEM = re.compile(r"\s*(?:(\*{1,5}|-)|(\.{1,5})|(\d+)\.)\s+(?:\[([ xX*])\]\s+)?(\S.*)")
TERM = re.compile(r"\s*(\S.*?):{2,4}(?:\s+(.*))?$")
CHECK_BOXES = {" ": "[ ] ", "x": "[x] ", "X": "[x] ", "*": "[x] "}
TABLE = re.compile(r"\|={3,}$")
CELL = re.compile(r"(?<!\\)(?:(?<!\S)(?:(\d+)?(?:\.(\d+))?\+|(\d+)\*)?[<^>.]*[aehlmsdv]?)?\|")
NAME = re.compile(r"\{([\w-]+)\}")
LINK = re.compile(r"(?:link:|xref:|mailto:|image::?|https?://|ftp://)([^\s\[\]]{0,1000})\[([^\[\]]*)\]")
STRUCK_SPAN = re.compile(r"\[\.?line-through\](#{1,2})(.+?)\1")
ROLE = re.compile(r"\[[.\w#-]+\](?=[#*_`])")
EMPHASIS = re.compile(r"(\*\*|__|``|##)(.+?)\1|(?<!\w)([*_`#+])(?=\S)([^*_`#+\n]*?\S)\3(?!\w)")
MAX_TABLE_COLUMNS = 100
MAX_HEADER_CHARACTERS = 500  # of the line with the author


def read_asciidoc(document: Document) -> Iterator[Block]:
    source = list(lines(document.path))
    attributes, title, body = read_header(source)
    fields = {"title": without_struck_words(asciidoc_text(title, attributes))}
    for key, name in FIELDS.items():
        if attributes.get(key):
            fields[name] = attributes[key]
    yield from front_fields(fields, 1)
    yield from numbered_blocks(
        list(asciidoc_lines(source[body:], attributes, document.skips)), document.skips
    )


def read_header(source: Sequence[Line]) -> tuple[dict[str, str], str, int]:
    """Return the attributes of a document, its title, and the number of lines of its header: the title, the author, the
    revision and attributes, to the first empty line."""
    attributes, title = dict[str, str](), ""
    for at, (_, line) in enumerate(source):
        heading, attribute = HEADING.match(line), ATTRIBUTE.match(line)
        author, revision = AUTHOR.match(line[:MAX_HEADER_CHARACTERS]), REVISION.match(line)
        if at == 0 and heading is not None and len(heading[1]) == 1:
            title = heading[2]
        elif attribute is not None:
            attributes[attribute[1]] = attribute[2] or ""
        elif title and at == 1 and author is not None:
            attributes["author"] = author[1]
        elif title and at == 2 and "author" in attributes and revision is not None:
            attributes |= {"revnumber": revision[1] or "", "revdate": revision[2] or ""}
        elif not line.startswith("//") and (line.strip() or at):
            return attributes, title, at
    return attributes, title, len(source)


def asciidoc_lines(source: Sequence[Line], attributes: dict[str, str], skips: SkipReport) -> Iterator[Line]:
    end = ""  # of the block that is open
    options, table = "", list[Line]()
    is_term = False  # whether the line before is one without its meaning
    for number, line in source:
        text = line.rstrip()
        was_term, is_term = is_term, False
        if end:
            if text != end:
                if end.startswith("|"):
                    table.append((number, text))
                elif not end.startswith("/"):
                    yield number, line.replace("```", "` ` `")
                continue
            if end.startswith("|"):
                yield from asciidoc_table(table, options, attributes)
            elif not end.startswith("/"):
                yield number, "```"
            end, options = "", ""
            continue
        if TABLE.match(text):
            end, table = text, []
            continue
        if COMMENT.match(text):
            end = text
            continue
        if CODE.match(text):
            end = "```" if text.startswith("`") else text
            yield number, "```"
            continue
        if text.startswith("include::"):
            skips.dropped["included files"] += 1
            continue
        attribute, settings = ATTRIBUTE.match(text), OPTIONS.match(text)
        heading, item, entry = HEADING.match(text), ITEM.match(text), TERM.match(text)
        if attribute is not None:
            attributes[attribute[1]] = attribute[2] or ""
        elif settings is not None:
            options = settings[1]
        elif FRAME.match(text):
            yield number, ""
        elif SILENT.match(text):
            is_term = was_term
        elif heading is not None:
            yield number, ""
            yield number, f"{'#' * len(heading[1])} {escaped(asciidoc_text(heading[2], attributes))}"
            yield number, ""
        elif item is not None:
            yield number, asciidoc_item(item, attributes)
        elif entry is not None and "://" not in entry[1]:
            yield number, ""
            yield number, escaped(asciidoc_text(entry[1], attributes))
            if entry[2]:
                yield number, f": {escaped(asciidoc_text(entry[2], attributes))}"
                yield number, ""
            is_term = not entry[2]
        elif re.match(r"\.[^\s.]", text):  # the title of a block
            yield number, escaped(asciidoc_text(text[1:], attributes))
            yield number, ""
        else:
            words = paragraph(asciidoc_text(text.removesuffix(" +"), attributes))
            if was_term and not words:
                is_term = True
            elif was_term:
                yield number, f": {words}"
            else:
                yield number, words


def asciidoc_item(item: re.Match[str], attributes: dict[str, str]) -> str:
    bullet, dots, count, state, text = item.groups()
    depth = len(bullet or dots or ".") - 1
    mark = "-" if bullet else f"{count or 1}."
    box = CHECK_BOXES.get(state, "")
    return f"{'   ' * depth}{mark} {box}{escaped(asciidoc_text(text, attributes))}"


def asciidoc_table(rows: Sequence[Line], options: str, attributes: dict[str, str]) -> Iterator[Line]:
    # Cells with their spans: (text, columns, rows, number of the line).
    cells: list[tuple[str, int, int, int]] = []
    first_line = 0  # cells of it
    has_names = "header" in options
    for at, (number, line) in enumerate(rows):
        if not first_line and not line.strip():
            continue
        marks = list(CELL.finditer(line))
        borders = [mark.start() for mark in marks] + [len(line)]
        before = line[: borders[0]]
        if cells and before.strip():
            words, is_item = cell_words(before, attributes)
            text, columns, height, begins = cells[-1]
            text += f"; {words}" if text and is_item else f" {words}"
            cells[-1] = (text.strip(), columns, height, begins)
        for mark, end in zip(marks, borders[1:], strict=True):
            words, _ = cell_words(line[mark.end() : end], attributes)
            cell = (words, repetitions(mark[1]), repetitions(mark[2]), number)
            cells += [cell] * repetitions(mark[3])
        if not first_line and cells:
            first_line = sum(columns for _, columns, _, _ in cells)
            is_alone = at + 1 < len(rows) and not rows[at + 1][1].strip()
            if at == 0 and is_alone and len(cells) > 1 and "noheader" not in options:
                has_names = True
    width = min(columns_of(options) or first_line, MAX_TABLE_COLUMNS)
    # Rows of as many columns as the table has, less those that cells above cover.
    divided: list[list[tuple[str, int, int]]] = []
    numbers: list[int] = []
    covered: list[int] = []  # by column: rows that a cell from above still covers
    filled = 0
    for text, columns, height, number in cells:
        if not filled:
            divided.append([])
            numbers.append(number)
            covered = [max(0, more - 1) for more in covered] or [0] * width
            filled = width - covered.count(0)
            if filled >= width:  # by cells of the same height, which leave no room for others
                covered, filled = [0] * width, 0
        columns = min(columns, width - filled)
        divided[-1].append((escaped(text), columns, height))
        free = [at for at, more in enumerate(covered) if not more]
        for at in free[:columns]:
            covered[at] = height
        filled += columns
        if filled >= width:
            covered = [more or 1 for more in covered]
            filled = 0
    yield from markdown_table(grid_of(divided), has_names and len(divided) > 1, numbers)


def cell_words(text: str, attributes: dict[str, str]) -> tuple[str, bool]:
    """Return the words of a cell, and whether they are an item of a list."""
    item = ITEM.match(text.strip())
    if item is None:
        return asciidoc_text(text.strip(), attributes), False
    return asciidoc_text(item[5], attributes), True


def repetitions(count: str | None) -> int:
    return min(int(count or 1), MAX_TABLE_COLUMNS)


def columns_of(options: str) -> int:
    """Return the number of columns that the options of a table name; 0 if they don't."""
    widths = re.search(r"cols\s*=\s*(?:\"([^\"]*)\"|([^\s,\]]*))", options)
    if widths is None:
        return 0
    count = 0
    for width in (widths[1] or widths[2] or "").replace(";", ",").split(","):
        times = re.match(r"\s*(\d+)\*", width)
        count += int(times[1]) if times else 1
    return min(count, MAX_TABLE_COLUMNS)


def asciidoc_text(text: str, attributes: dict[str, str]) -> str:
    """Return a text without marks, with the values of attributes and the words of links."""
    text = NAME.sub(lambda name: attributes.get(name[1], name[0]), text)
    text = STRUCK_SPAN.sub(lambda part: f"{STRUCK}{part[2].strip()}{STRUCK_END}", text)
    text = LINK.sub(lambda link: link[2].partition(",")[0].rstrip("^") or link[1], text)
    text = re.sub(r"<<[^<>,]*,\s*([^<>]*)>>", r"\1", re.sub(r"<<#?([^<>,]*)>>", r"\1", text))
    text = re.sub(r"footnote:\w*\[([^\[\]]*)\]", r" (\1)", text)
    text = re.sub(r"(?:kbd|btn|pass):\w*\[([^\[\]]*)\]|menu:(\w+)\[([^\[\]]*)\]", r"\1\2 \3", text)
    text = re.sub(r"\[\[[^\[\]]*\]\]|\(\(\([^()]*\)\)\)", "", text)
    text = ROLE.sub("", re.sub(r"\(\(([^()]*)\)\)", r"\1", text))
    return EMPHASIS.sub(lambda part: part[2] or part[4], text)
