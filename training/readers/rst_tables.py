"""Tables of reStructuredText as lines of items: list-table, csv-table, grid tables and simple tables.

Each row becomes an item that names its columns; a cell that spans rows or columns repeats its value.
"""

import csv
import re
from collections.abc import Container, Iterator, Sequence

from kcard.training.readers.web_tables import MAX_REPEATED_CHARACTERS, row_text

NumberedLine = tuple[int, str]

DIRECTIVE = re.compile(r"(\s*)\.\. (list-table|csv-table)::\s*(.*)")
OPTION = re.compile(r"\s+:([\w-]+):\s*(.*)")
GRID_RULE = re.compile(r"\s*\+(?:[-=]+\+)+\s*")
SIMPLE_RULE = re.compile(r"\s*=+(?: +=+)+\s*")
RULE_PART = re.compile(r"\+[-=]+\+")
MAX_GRID_LINES, MAX_GRID_CELLS, MAX_SIMPLE_LINES = 2000, 10_000, 500


def with_tables_as_items(rows: Sequence[NumberedLine], literal: Container[int]) -> Iterator[NumberedLine]:
    """Yield the lines of a document, in place of each table those of its items, with a blank line before and after.
    `literal`: the numbers of lines that are code, in which nothing is a table."""
    at = 0
    while at < len(rows):
        line = rows[at][1]
        end, directive = at, None
        items: list[NumberedLine] = []
        if rows[at][0] in literal:
            pass
        elif (directive := DIRECTIVE.fullmatch(line)) and (items := _directive_items(rows, at, directive)):
            end = _end_of_indented(rows, at + 1, len(directive[1]))
        elif GRID_RULE.fullmatch(line):
            end = min(_end_of_paragraph(rows, at), at + MAX_GRID_LINES)
            items = grid_items(rows[at:end])
            if not items:  # none of its lines begins a table
                yield from rows[at:end]
                at = end
                continue
        elif SIMPLE_RULE.fullmatch(line) and (end := _end_of_simple(rows, at)) > at:
            items = simple_items(rows[at:end])
        if end == at or not items:
            yield rows[at]
            at += 1
            continue
        yield rows[at][0], ""
        if directive and directive[3]:
            yield rows[at][0], directive[3]
            yield rows[at][0], ""
        for number, text in items:
            yield number, f"* {text}"
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
    while start < len(body) and (option := OPTION.fullmatch(body[start][1])):
        options[option[1]] = option[2]
        start += 1
    content = [row for row in body[start:] if row[1].strip()]
    count = options.get("header-rows", "")[:4]
    header_rows = int(count) if count.isdecimal() else 0
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
    delimiter = {"tab": "\t", "space": " "}.get(options.get("delim", ","), options.get("delim", ","))
    try:
        reader = csv.reader(
            (line.strip() + "\n" for _, line in content), delimiter=delimiter, skipinitialspace=True
        )
        table, first = [], 0
        for row in reader:
            table.append((content[first][0], [" ".join(cell.split()) for cell in row]))
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
    return [(number, text) for number, cells in table[header_rows:] if (text := row_text(names, cells))]


# Tables that are drawn.


def grid_items(rows: Sequence[NumberedLine]) -> list[NumberedLine]:
    """Return the items of a table drawn with +---+ and |. Cells are joined where the line between them is missing."""
    indent = len(rows[0][1]) - len(rows[0][1].lstrip())
    lines = [line[indent:] for _, line in rows]
    rules = [at for at, line in enumerate(lines) if RULE_PART.search(line)]
    columns = sorted({at for rule in rules for at, sign in enumerate(lines[rule]) if sign == "+"})
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
            block = lines[rules[top] + 1 : rules[bottom + 1]]
            text = " ".join(" ".join(line[columns[first] + 1 : columns[last + 1]] for line in block).split())
            is_first = (band, column) == (top, first)
            cells.append(text if is_first or len(text) <= MAX_REPEATED_CHARACTERS else "")
        table.append((rows[rules[band] + 1][0], cells))
    header_rows = next((at for at, rule in enumerate(rules) if "=" in lines[rule]), 0)
    return _items(table, header_rows if header_rows < bands else 0)


def _end_of_simple(rows: Sequence[NumberedLine], at: int) -> int:
    """Return the place after the last rule of a simple table; `at` if there is no second rule."""
    rule = rows[at][1].strip()
    end, place = at, at + 1
    while place < min(len(rows), at + MAX_SIMPLE_LINES):
        line = rows[place][1]
        if line.strip() == rule:
            end = place + 1
            following = rows[end][1] if end < len(rows) else ""
            if not following.strip():
                break
        elif line.strip() and rows[at][1].index("=") > len(line) - len(line.lstrip()):
            break
        place += 1
    return end


def simple_items(rows: Sequence[NumberedLine]) -> list[NumberedLine]:
    """Return the items of a table drawn with ==== ====. A row without a first cell goes on with the row before it."""
    spans = [(mark.start(), mark.end()) for mark in re.finditer(r"=+", rows[0][1])]
    table: list[tuple[int, list[str]]] = []
    header_rows = 0
    for number, line in rows[1:]:
        if SIMPLE_RULE.fullmatch(line):
            header_rows = header_rows or len(table)
            continue
        if not line.strip() or re.fullmatch(r"\s*-+(?: +-+)*\s*", line):
            continue
        ends = [start for start, _ in spans[1:]] + [len(line)]
        cells = [line[start:end].strip() for (start, _), end in zip(spans, ends, strict=True)]
        if not cells[0] and table and len(table) != header_rows:
            before = table[-1][1]
            before[:] = [f"{text} {more}".strip() for text, more in zip(before, cells, strict=True)]
        else:
            table.append((number, ["" if cell == "\\" else cell for cell in cells]))
    if header_rows == len(table):
        header_rows = 0  # the last rule alone
    return _items(table, header_rows)
