"""Tables of web pages and Word documents: those of data as plain grids, those for layout as text in their order.

A cell that spans rows or columns repeats its value, so that each row says everything by itself.
"""

import re
from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
BLOCKS = ["p", "div", "ul", "ol", "dl", "pre", "blockquote", "section", "article"]
# Parts of a cell's text.
PARTS = (*("p", "div", "li", "tr", "table", "ul", "ol", "dl", "dt", "dd", "pre", "blockquote"), *HEADINGS)
MAX_COLUMN_SPAN, MAX_ROW_SPAN = 50, 1000
MAX_REPEATED_CELLS = 20_000  # of a table: the others are written once
MAX_REPEATED_CHARACTERS = 200  # of a cell: a longer one is written once
MAX_HEADER_CHARACTERS = 40
DIVIDER = "\x1e"
PART_END = re.compile(r"[.:;,!?…]$")
DIGIT = re.compile(r"\d")


def row_text(header: Sequence[str], cells: Sequence[str]) -> str:
    """Return a table row as text: each cell with the name of its column, except the first, which the row is about. A
    row of two cells without names is a term and its value."""
    if len(cells) == 2 and all(cells) and not any(header):
        return ": ".join(cells)
    parts = []
    for at, cell in enumerate(cells):
        if not cell:
            continue
        if at and at < len(header) and header[at]:
            cell = f"{header[at]}: {cell}"
        parts.append(cell)
    return "; ".join(parts)


def simplify_tables(tree: "BeautifulSoup") -> None:
    """Turn tables of data into grids of texts with a header, and other tables into blocks."""
    for table in tree.find_all("table"):
        if table.decomposed:
            continue  # within a cell of another
        rows = rows_of(table)
        header_rows = count_header_rows(rows)
        if not header_rows and is_layout(table, rows):
            flow(table, rows)
            continue
        cells = [cells_of(row) for row in rows]
        grid = grid_of([list(map(cell_of, row)) for row in cells])
        if not header_rows and has_header(cells, grid):
            header_rows = 1
        if not header_rows and any(map(has_blocks, chain.from_iterable(cells))):
            flow(table, rows)
        else:
            write_grid(tree, table, grid, header_rows)


def rows_of(table: "Tag") -> "list[Tag]":
    """Return the rows of a table, without those of tables within it."""
    rows = []
    for part in table.find_all(["tr", "thead", "tbody", "tfoot"], recursive=False):
        if part.name == "tr":
            rows.append(part)
        else:
            rows += part.find_all("tr", recursive=False)
    return rows


def cells_of(row: "Tag") -> "list[Tag]":
    return list(row.find_all(["td", "th"], recursive=False))


def cell_of(cell: "Tag") -> tuple[str, int, int]:
    """Return a cell's text, and how many columns and rows it spans."""
    columns = span_of(cell, "colspan", MAX_COLUMN_SPAN)
    rows = span_of(cell, "rowspan", MAX_ROW_SPAN)
    return text_of(cell), columns, rows


def span_of(cell: "Tag", name: str, max_span: int) -> int:
    """Return a span, at most `max_span`, which 0 stands for."""
    value = str(cell.attrs.get(name, "1")).strip()[:6]
    if not value.isdecimal():
        return 1
    return min(int(value), max_span) or max_span


def text_of(cell: "Tag") -> str:
    """Return a cell's text in one line; its paragraphs, list items and rows of tables are divided by semicolons."""
    pieces: list[str] = []
    _collect(cell, pieces)
    text = ""
    for part in "".join(pieces).split(DIVIDER):
        words = " ".join(part.split())
        if words and text:
            text += " " if PART_END.search(text) else "; "
        text += words
    return text


def _collect(element: "Tag", pieces: list[str]) -> None:
    """Add the texts of an element, with a mark at both ends of its parts."""
    from bs4 import Tag

    for child in element.children:
        if not isinstance(child, Tag):
            pieces.append(str(child))
            continue
        mark = ""
        if child.name in PARTS:
            mark = DIVIDER
        elif child.name in ("br", "td", "th"):
            mark = " "
        pieces.append(mark)
        _collect(child, pieces)
        pieces.append(mark)


def grid_of(rows: Sequence[Sequence[tuple[str, int, int]]]) -> list[list[str]]:
    """Return the texts of cells by row and column; a cell that spans several repeats its value, except over a whole
    row, whose only text it is."""
    grid: list[list[str]] = []
    spanning: dict[int, tuple[int, str]] = {}  # by column: in how many more rows, and the text
    repeated = 0
    for cells in rows:
        if repeated > MAX_REPEATED_CELLS:
            spanning = {}
        line: list[str] = []
        below: dict[int, tuple[int, str]] = {}
        waiting = deque(cells)
        last = max(spanning, default=-1)
        while waiting or len(line) <= last:
            column = len(line)
            if column in spanning:
                repeated += 1
                more, text = spanning[column]
                line.append(text)
                if more > 1:
                    below[column] = (more - 1, text)
                continue
            if not waiting:
                line.append("")
                continue
            text, columns, height = waiting.popleft()
            repeated += columns - 1
            if repeated > MAX_REPEATED_CELLS:
                columns = 1
            for _ in range(columns):
                if height > 1:
                    below[len(line)] = (height - 1, text)
                line.append(text)
                if len(text) > MAX_REPEATED_CHARACTERS:
                    text = ""
        if len(cells) == 1 and cells[0][1] > 1 and not spanning:  # over a whole row
            line = line[:1]
        grid.append(line)
        spanning = below
    return grid


def count_header_rows(rows: "Sequence[Tag]") -> int:
    """Return how many rows at the top name the columns: those in a thead, or of th alone."""
    count = 0
    for row in rows:
        cells = cells_of(row)
        is_of_names = {cell.name for cell in cells} == {"th"}
        if not is_of_names and not (row.parent is not None and row.parent.name == "thead"):
            break
        count += 1
    return count if count < len(rows) else 0


def has_header(rows: "Sequence[Sequence[Tag]]", grid: Sequence[Sequence[str]]) -> bool:
    """Return whether a first row without marks names the columns: in short words without digits that stand over a
    column with digits in every other row, or in bold as no other row. `rows`: the cells, `grid`: their texts."""
    if len(rows) < 2:
        return False
    first, *others = grid
    if len(first) < 2 or len({*first}) < len(first) or not all(map(is_name, first)):
        return False
    if is_bold(rows[0]) and not any(map(is_bold, rows[1:])):
        return True
    if len(first) < 3 or len(rows) < 3:
        return False
    return any(has_digits(others, column) for column in range(1, len(first)))


def is_name(text: str) -> bool:
    """Return whether a text may name a column: it is short, without digits."""
    return 0 < len(text) <= MAX_HEADER_CHARACTERS and not DIGIT.search(text)


def has_digits(rows: Sequence[Sequence[str]], column: int) -> bool:
    """Return whether all rows have digits in a column."""
    return all(column < len(row) and DIGIT.search(row[column]) for row in rows)


def is_bold(cells: "Sequence[Tag]") -> bool:
    return all(cell.find(["b", "strong"]) for cell in cells)


def is_layout(table: "Tag", rows: "Sequence[Tag]") -> bool:
    """Return whether a table without a header only arranges text: one column, or a table, heading or lines of code in a
    cell."""
    if table.attrs.get("role") in ("presentation", "none") or table.find(["table", "hr", *HEADINGS]):
        return True
    if any("\n" in code.get_text().strip() for code in table.find_all("pre")):
        return True
    return max((len(cells_of(row)) for row in rows), default=0) < 2


def has_blocks(cell: "Tag") -> bool:
    """Return whether a cell has a list or several paragraphs."""
    return bool(cell.find(["ul", "ol", "dl"])) or len(cell.find_all(BLOCKS, recursive=False)) > 2


def flow(table: "Tag", rows: "Sequence[Tag]") -> None:
    """Turn a table into blocks in their order; a row of short cells into one paragraph."""
    for row in rows:
        cells = cells_of(row)
        filled = [cell for cell in cells if cell.get_text(strip=True)]
        inline = not any(cell.find([*BLOCKS, "table", *HEADINGS]) for cell in cells)
        if len(filled) > 1 and inline:
            row.name = "p"
            mark = ": " if len(filled) == 2 else "; "
            for cell in filled[1:]:
                cell.insert(0, mark)
            for cell in cells:
                cell.unwrap()
        else:
            row.name = "div"
            for cell in cells:
                cell.name = "div"
    for part in table.find_all(["thead", "tbody", "tfoot", "caption"], recursive=False):
        part.name = "div"
    table.name = "div"


def write_grid(tree: "BeautifulSoup", table: "Tag", grid: Sequence[Sequence[str]], header_rows: int) -> None:
    """Replace the rows of a table; several rows of names become one."""
    caption = table.find("caption", recursive=False)
    title = text_of(caption) if caption is not None else ""
    table.clear(decompose=True)
    if title:
        heading = tree.new_tag("caption", string=title)
        table.append(heading)
    width = max((len(line) for line in grid), default=0)
    names = []
    for column in range(width):
        parts = [line[column] for line in grid[:header_rows] if column < len(line)]
        names.append(" ".join(filter(None, dict.fromkeys(parts))))
    header = [names] if header_rows else []
    for part, kind, lines in (("thead", "th", header), ("tbody", "td", grid[header_rows:])):
        if part == "thead" and not header:
            continue
        section = tree.new_tag(part)
        for line in lines:
            row = tree.new_tag("tr")
            for text in line:
                row.append(tree.new_tag(kind, string=text))
            section.append(row)
        table.append(section)
