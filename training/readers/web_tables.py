"""Tables of web pages and Word documents: those of data as plain grids, those for layout as text in their order.

A cell that spans rows or columns repeats its value, so that each row says everything by itself.
"""

import re
from collections import deque
from collections.abc import Sequence
from itertools import zip_longest
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
CLOSED = re.compile(r"[.:;,!?…]$")
DIGIT = re.compile(r"\d")


def row_text(header: Sequence[str], cells: Sequence[str]) -> str:
    """Return a table row as text: each cell with the name of its column, except the first, which the row is about. A
    row of two cells without names is a term and its value."""
    filled = [cell for cell in cells if cell]
    if len(filled) == 2 and filled == [*cells] and not any(header):
        return ": ".join(filled)
    named = [
        f"{name}: {cell}" if at and name else cell
        for at, (name, cell) in enumerate(zip_longest(header, cells, fillvalue=""))
        if cell
    ]
    return "; ".join(named)


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
        grid = grid_of([[cell_of(cell) for cell in cells_of(row)] for row in rows])
        if not header_rows and has_header(rows, grid):
            header_rows = 1
        if not header_rows and any(has_blocks(cell) for row in rows for cell in cells_of(row)):
            flow(table, rows)
        else:
            write_grid(tree, table, grid, header_rows)


def rows_of(table: "Tag") -> "list[Tag]":
    """Return the rows of a table, without those of tables within it."""
    rows = []
    for part in table.find_all(["tr", "thead", "tbody", "tfoot"], recursive=False):
        rows += [part] if part.name == "tr" else part.find_all("tr", recursive=False)
    return rows


def cells_of(row: "Tag") -> "list[Tag]":
    return list(row.find_all(["td", "th"], recursive=False))


def cell_of(cell: "Tag") -> tuple[str, int, int]:
    """Return a cell's text, and how many columns and rows it spans."""
    spans = []
    for name, most in (("colspan", MAX_COLUMN_SPAN), ("rowspan", MAX_ROW_SPAN)):
        value = str(cell.attrs.get(name, "1")).strip()
        span = int(value[:6]) if value[:6].isdecimal() else 1
        spans.append(min(span, most) or most)  # 0: to the end
    return text_of(cell), spans[0], spans[1]


def text_of(cell: "Tag") -> str:
    """Return a cell's text in one line; its paragraphs, list items and rows of tables are divided by semicolons."""
    pieces: list[str] = []
    _collect(cell, pieces)
    text = ""
    for part in "".join(pieces).split(DIVIDER):
        words = " ".join(part.split())
        if words and text:
            text += " " if CLOSED.search(text) else "; "
        text += words
    return text


def _collect(element: "Tag", pieces: list[str]) -> None:
    """Add the texts of an element, with a mark at both ends of its parts."""
    from bs4 import Tag

    for child in element.children:
        if not isinstance(child, Tag):
            pieces.append(str(child))
            continue
        mark = DIVIDER if child.name in PARTS else " " if child.name in ("br", "td", "th") else ""
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
            for _ in range(columns if repeated <= MAX_REPEATED_CELLS else 1):
                if height > 1:
                    below[len(line)] = (height - 1, text)
                line.append(text)
                if len(text) > MAX_REPEATED_CHARACTERS:
                    text = ""
        whole = len(cells) == 1 and cells[0][1] > 1 and not spanning
        grid.append(line[:1] if whole else line)
        spanning = below
    return grid


def count_header_rows(rows: "Sequence[Tag]") -> int:
    """Return how many rows at the top name the columns: those in a thead, or of th alone."""
    count = 0
    for row in rows:
        cells = cells_of(row)
        names = bool(cells) and all(cell.name == "th" for cell in cells)
        if not names and not (row.parent is not None and row.parent.name == "thead"):
            break
        count += 1
    return count if count < len(rows) else 0


def has_header(rows: "Sequence[Tag]", grid: Sequence[Sequence[str]]) -> bool:
    """Return whether a first row without marks names the columns: in short words without digits that stand over a
    column with digits in every other row, or in bold as no other row."""
    first = grid[0] if grid else []
    if len(rows) < 2 or len(first) < 2 or len({*first}) < len(first):
        return False
    if not all(text and len(text) <= MAX_HEADER_CHARACTERS and not DIGIT.search(text) for text in first):
        return False
    bold = [all(cell.find(["b", "strong"]) for cell in cells_of(row)) for row in rows]
    if bold[0] and not any(bold[1:]):
        return True
    if len(first) < 3 or len(rows) < 3:
        return False
    for column in range(1, len(first)):
        if all(column < len(line) and DIGIT.search(line[column]) for line in grid[1:]):
            return True
    return False


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
            for at, cell in enumerate(filled):
                if at:
                    cell.insert(0, ": " if len(filled) == 2 else "; ")
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
        names.append(" ".join(part for part in dict.fromkeys(parts) if part))
    body = [*grid[header_rows:]]
    for part, kind, lines in (("thead", "th", [names]), ("tbody", "td", body)):
        if kind == "th" and not header_rows:
            continue
        section = tree.new_tag(part)
        for line in lines:
            row = tree.new_tag("tr")
            for text in line:
                row.append(tree.new_tag(kind, string=text))
            section.append(row)
        table.append(section)
