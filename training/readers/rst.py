"""reStructuredText, without the marks of roles and directives.

Each row of a table (list-table, csv-table, grid table, simple table) becomes an item that names its columns; a cell
that spans rows or columns repeats its value.
"""

import csv
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from kcard.training.readers import layout
from kcard.training.readers.files import Block, Document
from kcard.training.readers.text import lines
from kcard.training.readers.web_tables import MAX_REPEATED_CHARACTERS, row_text

# Directives that name or show something, whose line contains no text.
SILENT = re.compile(
    r"\s*\.\. (?:[_[|]|(?:index|toctree|image|figure|include|highlight|contents|meta|code|code-block|sourcecode"
    r"|literalinclude|parsed-literal|only|tab|tabs|rubric)::|(?![\w:+-]+::))"
)
CODE = re.compile(r"\s*\.\. (?:code|code-block|sourcecode|parsed-literal)::")
DIRECTIVE = re.compile(r"\s*\.\. ([\w:+-]+)::\s*")
VERSIONS = {
    "deprecated": "Deprecated since version",
    "versionadded": "New in version",
    "versionchanged": "Changed in version",
    "versionremoved": "Removed in version",
}
VERSION = re.compile(r"v?\d")
OPTION = re.compile(r"\s+:[\w-]+:(\s|$)")
ROLE = re.compile(r":[\w:+-]{1,60}:`~?!?([^`<]+)(<[^`>]*>)?`")
RST_LINK = re.compile(r"`([^`<]+)(<[^`>]*>)`__?")
LITERAL = re.compile(r"``([^`]+)``|`([^`]+)`_{0,2}|\*\*([^*\s][^*]*)\*\*|(?<!\w)\*([^*\s][^*]*)\*(?!\w)")

NumberedLine = tuple[int, str]


def read_rst(document: Document) -> Iterator[Block]:
    source = [*lines(document.path)]
    rows = list(with_tables_as_items(source, literal_lines(source)))
    yield from layout.blocks(plain_lines(rows), literal_lines(rows))


def literal_lines(numbered: Iterable[NumberedLine]) -> set[int]:
    """Return the numbers of lines in literal blocks: those indented deeper than the `::` or directive before them."""
    literal: set[int] = set()
    begun: int | None = None  # indentation of what introduced the block
    for number, line in numbered:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        if begun is not None and indent > begun:
            literal.add(number)
            continue
        introduces = CODE.match(line) or (line.rstrip().endswith("::") and not line.lstrip().startswith(".."))
        begun = indent if introduces else None
    return literal


def plain_lines(numbered: Sequence[NumberedLine]) -> Iterator[NumberedLine]:
    """Yield lines without links, roles, directives and other marks."""
    is_directive = False
    for number, line in without_links(numbered):
        mark = DIRECTIVE.match(line)
        if SILENT.match(line):
            is_directive = True
            line = ""
        elif mark is not None:
            is_directive = True
            text = line[mark.end() :]
            if mark[1] in VERSIONS and VERSION.match(text):
                text = f"{VERSIONS[mark[1]]} {text}"
            indent = line[: len(line) - len(line.lstrip())]
            line = indent + text
        elif is_directive and OPTION.match(line):
            line = ""
        elif line.strip():
            is_directive = False
        line = LITERAL.sub(_first_group, line)
        if line.strip() == "::":
            yield number, ""
        else:
            yield number, re.sub(r"::$", ":", line)


def without_links(numbered: Iterable[NumberedLine]) -> Iterator[NumberedLine]:
    """Replace links and roles by their words, which may continue in the next line of the paragraph."""
    for is_filled, group in groupby(numbered, lambda row: bool(row[1].strip())):
        rows = list(group)
        if not is_filled:
            yield from rows
            continue
        text = "\n".join(line for _, line in rows)
        text = ROLE.sub(_inner_words, RST_LINK.sub(_inner_words, text))
        for (number, _), line in zip(rows, text.split("\n"), strict=True):
            yield number, line


def _first_group(mark: re.Match[str]) -> str:
    """Return the words of the mark that matched."""
    return str(next(filter(None, mark.groups())))


def _inner_words(mark: re.Match[str]) -> str:
    """Return the first group, with as many line ends as the whole match has. Group 2 is the target of a link."""
    words = mark[1]
    if mark[2]:
        words = words.rstrip()
    return words + "\n" * (mark[0].count("\n") - words.count("\n"))


# Tables.

TABLE_DIRECTIVE = re.compile(r"(\s*)\.\. (list-table|csv-table)::\s*(.*)")
TABLE_OPTION = re.compile(r"\s+:([\w-]+):\s*(.*)")
GRID_RULE = re.compile(r"\s*\+(?:[-=]+\+)+\s*")
SIMPLE_RULE = re.compile(r"\s*=+(?: +=+)+\s*")
RULE_PART = re.compile(r"\+[-=]+\+")
MAX_GRID_LINES, MAX_GRID_CELLS, MAX_SIMPLE_LINES = 2000, 10_000, 500


def with_tables_as_items(rows: Sequence[NumberedLine], literal: Container[int]) -> Iterator[NumberedLine]:
    """Yield the lines of a document, in place of each table those of its items, with a blank line before and after.
    `literal`: the numbers of lines that are code, in which nothing is a table."""
    at = 0
    while at < len(rows):
        number, line = rows[at]
        caption = ""
        end = at
        items: list[NumberedLine] = []
        if number not in literal:
            directive = TABLE_DIRECTIVE.fullmatch(line)
            if directive is not None:
                items = _directive_items(rows, at, directive)
                caption = directive[3]
                end = _end_of_indented(rows, at + 1, len(directive[1]))
            elif GRID_RULE.fullmatch(line):
                end = min(_end_of_paragraph(rows, at), at + MAX_GRID_LINES)
                items = grid_items(rows[at:end])
                if not items:  # none of its lines begins a table
                    yield from rows[at:end]
                    at = end
                    continue
            elif SIMPLE_RULE.fullmatch(line):
                end = _end_of_simple(rows, at)
                if end > at:
                    items = simple_items(rows[at:end])
        if not items:
            yield number, line
            at += 1
            continue
        yield number, ""
        if caption:
            yield number, caption
            yield number, ""
        for item_number, text in items:
            yield item_number, f"* {text}"
        yield rows[end - 1][0], ""
        at = end


def _end_of_paragraph(rows: Sequence[NumberedLine], at: int) -> int:
    while at < len(rows) and rows[at][1].strip():
        at += 1
    return at


def _end_of_indented(rows: Sequence[NumberedLine], at: int, indent: int) -> int:
    """Return the place after the lines that are indented deeper."""
    last = at
    while at < len(rows):
        line = rows[at][1]
        if line.strip():
            if len(line) - len(line.lstrip()) <= indent:
                break
            last = at + 1
        at += 1
    return last


# Directives.


def _directive_items(rows: Sequence[NumberedLine], at: int, directive: re.Match[str]) -> list[NumberedLine]:
    body = rows[at + 1 : _end_of_indented(rows, at + 1, len(directive[1]))]
    options: dict[str, str] = {}
    start = 0
    while start < len(body):
        option = TABLE_OPTION.fullmatch(body[start][1])
        if option is None:
            break
        options[option[1]] = option[2]
        start += 1
    content = [row for row in body[start:] if row[1].strip()]
    count = options.get("header-rows", "")[:4]
    header_rows = 0
    if count.isdecimal():
        header_rows = int(count)
    if directive[2] == "list-table":
        table = list_rows(content)
    else:
        table = csv_rows(content, options)
        if "header" in options:
            table.insert(0, (0, next(csv.reader([options["header"]], skipinitialspace=True), [])))
            header_rows += 1
    return _items(table, header_rows)


def list_rows(content: Sequence[NumberedLine]) -> list[tuple[int, list[str]]]:
    """Return the rows of a list of lists: "* - cell" begins a row, "- cell" a cell."""
    table: list[tuple[int, list[str]]] = []
    for number, line in content:
        text = line.strip()
        if text[:1] == "*" and text[1:].lstrip()[:1] in ("-", "+", "*"):
            table.append((number, [text[1:].lstrip()[1:].strip()]))
        elif not table:
            return []
        elif text[:1] in ("-", "+") and text[1:2] in ("", " "):
            table[-1][1].append(text[1:].strip())
        else:
            cells = table[-1][1]
            cells[-1] = f"{cells[-1]} {text}".strip()
    return table


def csv_rows(content: Sequence[NumberedLine], options: dict[str, str]) -> list[tuple[int, list[str]]]:
    delimiter = options.get("delim", ",")
    delimiter = {"tab": "\t", "space": " "}.get(delimiter, delimiter)
    lines = [f"{line.strip()}\n" for _, line in content]
    try:
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        table, first = [], 0
        for row in reader:
            cells = [" ".join(cell.split()) for cell in row]
            table.append((content[first][0], cells))
            first = min(reader.line_num, len(content) - 1)
    except (csv.Error, TypeError):
        return []
    return table


def _items(table: Sequence[tuple[int, Sequence[str]]], header_rows: int) -> list[NumberedLine]:
    names: list[str] = []
    for _, cells in table[:header_rows]:
        width = max(len(names), len(cells))
        names += [""] * (width - len(names))
        for at, cell in enumerate(cells):
            if cell not in names[at]:
                names[at] = f"{names[at]} {cell}".strip()
    items = []
    for number, cells in table[header_rows:]:
        text = row_text(names, cells)
        if text:
            items.append((number, text))
    return items


# Tables that are drawn.


def grid_items(rows: Sequence[NumberedLine]) -> list[NumberedLine]:
    """Return the items of a table drawn with +---+ and |. Cells are joined where the line between them is missing."""
    indent = len(rows[0][1]) - len(rows[0][1].lstrip())
    lines = [line[indent:] for _, line in rows]
    rules = [at for at, line in enumerate(lines) if RULE_PART.search(line)]
    borders: set[int] = set()
    for rule in rules:
        borders.update(mark.start() for mark in re.finditer(r"\+", lines[rule]))
    columns = sorted(borders)
    bands, width = len(rules) - 1, len(columns) - 1
    if bands < 1 or width < 1 or bands * width > MAX_GRID_CELLS:
        return []
    # The area of each cell: its first band and column, and the last ones.
    areas: dict[tuple[int, int], list[int]] = {}
    for band in range(bands):
        inside = lines[rules[band] + 1 : rules[band + 1]]
        above = lines[rules[band]]
        for column in range(width):
            left, right = columns[column], columns[column + 1]
            area = [band, column, band, column]
            if column and all(line[left : left + 1] not in ("|", "+") for line in inside):
                area = areas[band, column - 1]
            elif band and not set(above[left + 1 : right]) <= set("-=+"):
                area = areas[band - 1, column]
            area[2], area[3] = max(area[2], band), max(area[3], column)
            areas[band, column] = area
    table: list[tuple[int, list[str]]] = []
    for band in range(bands):
        cells = []
        for column in range(width):
            top, first, bottom, last = areas[band, column]
            words: list[str] = []
            for line in lines[rules[top] + 1 : rules[bottom + 1]]:
                words += line[columns[first] + 1 : columns[last + 1]].split()
            text = " ".join(words)
            is_repeated = (band, column) != (top, first)
            if is_repeated and len(text) > MAX_REPEATED_CHARACTERS:
                text = ""
            cells.append(text)
        table.append((rows[rules[band] + 1][0], cells))
    # The rule below the names of the columns is drawn with "=".
    for at, rule in enumerate(rules[:bands]):
        if "=" in lines[rule]:
            return _items(table, at)
    return _items(table, 0)


def _end_of_simple(rows: Sequence[NumberedLine], at: int) -> int:
    """Return the place after the last rule of a simple table; `at` if there is no second rule."""
    rule = rows[at][1].strip()
    end, place = at, at + 1
    while place < min(len(rows), at + MAX_SIMPLE_LINES):
        line = rows[place][1]
        if line.strip() == rule:
            end = place + 1
            if end == len(rows) or not rows[end][1].strip():
                break
        elif line.strip() and rows[at][1].index("=") > len(line) - len(line.lstrip()):
            break
        place += 1
    return end


def simple_items(rows: Sequence[NumberedLine]) -> list[NumberedLine]:
    """Return the items of a table drawn with ==== ====. A row without a first cell goes on with the row before it."""
    starts = [mark.start() for mark in re.finditer(r"=+", rows[0][1])]
    table: list[tuple[int, list[str]]] = []
    header_rows = 0
    for number, line in rows[1:]:
        if SIMPLE_RULE.fullmatch(line):
            header_rows = header_rows or len(table)
            continue
        if not line.strip() or re.fullmatch(r"\s*-+(?: +-+)*\s*", line):
            continue
        cells = [line[start:end].strip() for start, end in pairwise([*starts, len(line)])]
        if not cells[0] and table and len(table) != header_rows:
            before = table[-1][1]
            for at, cell in enumerate(cells):
                before[at] = f"{before[at]} {cell}".strip()
        else:
            for at, cell in enumerate(cells):
                if cell == "\\":  # an empty cell
                    cells[at] = ""
            table.append((number, cells))
    if header_rows == len(table):
        header_rows = 0  # the last rule alone
    return _items(table, header_rows)
