"""Tables that are drawn with characters in plain text: boxes, cells between bars, and columns below a rule of dashes.

Each row becomes an item that names its columns. Prose with double blanks, code and pictures have no rows.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kcard.training.readers.web_tables import DIGIT, has_digits, is_name, row_text

MIN_ROWS = 2  # below the names of the columns
MIN_COLUMNS = 2
MIN_COLUMNS_WITHOUT_RULE = 3
MAX_CELL_CHARACTERS = 400
BARS = "|│┃║"
# Lines of a box: +---+---+, ├───┼───┤, |---|---|; and between the names and the rows of an open one: ----+----.
BORDER = re.compile(r"[+├┌└┬┴┼┤┐┘╞╔╚╠|┠┏┗]?[-=─━═]+(?:[+┬┴┼╪╬╦╩|┿╋][-=─━═]+)*[+┤┐┘╡╗╝╣|┨┓┛]?")
JOINT = re.compile(r"[+┬┴┼╪╬╦╩|┿╋├┌└┤┐┘╞╡╔╗╚╝╠╣┠┨┏┓┗┛]")
SPLIT = re.compile(f"[{BARS}]")
DASHES = re.compile(r"[-=─━]{2,}(?: +[-=─━]{2,})*")
GROUP = re.compile(r"[-=─━]+")
CELL = re.compile(r"\S+(?: \S+)*")
CODE = re.compile(r"^\s*(?:[$#%>]|//|/\*)|[{};]\s*$|\|\||::=|\\$")
PADDED_BAR = re.compile(f"  [{BARS}]")
MARK = re.compile(f"[{BARS}]|[-=─━═]{{3}}")
SIGN = re.compile(r"[|│┃║]|[-=─━]{3}|\S(?: {2,}|\t)\S[^\n]*\S(?: {2,}|\t)\S")


@dataclass
class DrawnRow:
    """The texts of a row's cells, and the number of the line where it begins."""

    cells: list[str]
    line: int


@dataclass(frozen=True)
class DrawnTable:
    """A table in a paragraph; `rows`: the number of the line where each begins, and its text. Lines are counted from 0
    in the paragraph, `end` is behind the last one."""

    start: int
    end: int
    rows: Sequence[tuple[int, str]]


def find_tables(paragraph: Sequence[str]) -> list[DrawnTable]:
    """Find the tables in the lines of a paragraph."""
    if len(paragraph) <= MIN_ROWS or not SIGN.search("\n".join(paragraph)):
        return []
    lines = [line.expandtabs().rstrip() for line in paragraph]
    tables = []
    at = 0
    while at < len(lines):
        table = _table_at(lines, at)
        at += 1
        if table is not None:
            tables.append(table)
            at = table.end
    return tables


def _table_at(lines: Sequence[str], at: int) -> DrawnTable | None:
    """Return the table that begins at a line, None if there is none."""
    readers = [read_columns]
    if MARK.search(lines[at]):
        readers = [read_box, read_bars, read_columns]
    for read in readers:
        end, rows, has_names = read(lines, at)
        longest = max((len(cell) for row in rows for cell in row.cells), default=0)
        if len(rows) <= has_names or longest > MAX_CELL_CHARACTERS:
            continue
        names: Sequence[str] = ()
        if has_names:
            names = rows[0].cells
        texts = [(row.line, row_text(names, row.cells)) for row in rows[has_names:]]
        return DrawnTable(at, end, [row for row in texts if row[1]])
    return None


def read_box(lines: Sequence[str], at: int) -> tuple[int, list[DrawnRow], bool]:
    """Read a table in a box: (its end, its rows, whether the first one names the columns); no rows if there is none."""
    columns = _columns_of_border(lines[at])
    if columns < MIN_COLUMNS:
        return at, [], False
    bands: list[list[DrawnRow]] = [[]]
    marks = [lines[at]]
    end = at + 1
    while end < len(lines):
        text = lines[end].strip()
        if _columns_of_border(text) == columns:
            bands.append([])
            marks.append(text)
        else:
            cells = [cell.strip() for cell in SPLIT.split(text)]
            is_row = text[:1] in BARS and text[-1:] in BARS and len(cells) == columns + 2
            if not is_row:
                break
            bands[-1].append(DrawnRow(cells[1:-1], end))
        end += 1
    is_closed = not bands[-1] and any(bands)
    filled = [band for band in bands if any(any(row.cells) for row in band)]
    if not is_closed or not filled:
        return at, [], False
    rows = []
    for band in filled:
        rows += _rows_of_band(band, are_divided=len(filled) > 2)
    has_names = len(rows) > 1 and all(map(is_name, rows[0].cells)) and len({*rows[0].cells}) == columns
    is_ruled = len(filled) == 2 or (len(marks) > 1 and "=" in marks[1])
    return end, rows, has_names and (is_ruled or len(filled) > 2)


def _columns_of_border(line: str) -> int:
    text = line.strip()
    if not BORDER.fullmatch(text) or not JOINT.match(text) or not JOINT.search(text[-1:]):
        return 0
    return len(GROUP.findall(text.replace("═", "=")))


def _rows_of_band(band: Sequence[DrawnRow], *, are_divided: bool) -> list[DrawnRow]:
    """Return the rows between two lines of a box: where each row is divided from the next, one with all of its lines,
    and elsewhere one for each line with a first cell."""
    rows: list[DrawnRow] = []
    is_whole = are_divided and not all(all(row.cells) for row in band)
    for row in band:
        if not any(row.cells):
            continue
        if rows and (is_whole or not row.cells[0]):
            for column, cell in enumerate(row.cells):
                rows[-1].cells[column] = f"{rows[-1].cells[column]} {cell}".strip()
        else:
            rows.append(DrawnRow(list(row.cells), row.line))
    return rows


def read_bars(lines: Sequence[str], at: int) -> tuple[int, list[DrawnRow], bool]:
    """Read rows of cells between bars: with a rule below the names, or with at least three columns that are aligned or
    have digits below a name. See read_box."""
    rows: list[DrawnRow] = []
    places = []
    is_ruled = False
    end = at
    while end < len(lines):
        text = lines[end].strip()
        if len(rows) == 1 and not is_ruled and "-" in text and BORDER.fullmatch(text):
            if len(GROUP.findall(text)) != len(rows[0].cells):
                return at, [], False
            is_ruled = True
            end += 1
            continue
        cells = [cell.strip() for cell in SPLIT.split(text.strip(BARS))]
        if len(cells) < MIN_COLUMNS or CODE.search(text) or (rows and len(cells) != len(rows[0].cells)):
            break
        rows.append(DrawnRow(cells, end))
        places.append([mark.start() for mark in SPLIT.finditer(lines[end])])
        end += 1
    if len(rows) <= MIN_ROWS - is_ruled or not all(map(is_name, rows[0].cells)):
        return at, [], False
    if is_ruled:
        return end, rows, True
    others = [row.cells for row in rows[1:]]
    columns = len(rows[0].cells)
    # Bars one below the other, where the cells are filled up with blanks.
    is_padded = any(PADDED_BAR.search(line) for line in lines[at:end])
    is_aligned = is_padded and all(place == places[0] for place in places)
    is_table = is_aligned or any(has_digits(others, column) for column in range(1, columns))
    if columns < MIN_COLUMNS_WITHOUT_RULE or not is_table:
        return at, [], False
    return end, rows, True


def read_columns(lines: Sequence[str], at: int) -> tuple[int, list[DrawnRow], bool]:
    """Read aligned columns below their names and a rule of dashes; without a rule at least three columns, one of them
    with digits in every row. See read_box."""
    first = at + 1
    if first + 1 >= len(lines):
        return at, [], False
    is_ruled = bool(DASHES.fullmatch(lines[first].strip()))
    if not is_ruled and not (DIGIT.search(lines[first]) and DIGIT.search(lines[first + 1])):
        return at, [], False
    names = _cells(lines[at])
    if len(names) < MIN_COLUMNS or not all(is_name(text) for _, _, text in names):
        return at, [], False
    if is_ruled:
        groups = GROUP.findall(lines[first])
        first += 1
        if len(groups) > 1 and len(groups) != len(names):
            return at, [], False
    elif len(names) < MIN_COLUMNS_WITHOUT_RULE:
        return at, [], False
    table = [DrawnRow([text for _, _, text in names], at)]
    end = first
    while end < len(lines) and not DASHES.fullmatch(lines[end].strip()):
        cells = _placed(lines[end], names)
        if cells is None or CODE.search(lines[end]):
            break
        is_full = sum(map(bool, cells)) >= MIN_COLUMNS
        if not cells[0] and end > first:
            for column, cell in enumerate(cells):
                table[-1].cells[column] = f"{table[-1].cells[column]} {cell}".strip()
        elif is_full:
            table.append(DrawnRow(cells, end))
        else:
            break
        end += 1
    if is_ruled and end < len(lines) and DASHES.fullmatch(lines[end].strip()):
        end += 1
    others = [row.cells for row in table[1:]]
    if len(others) < MIN_ROWS:
        return at, [], False
    is_plain = all(all(cells) for cells in others)
    if not is_ruled and not (is_plain and any(has_digits(others, column) for column in range(1, len(names)))):
        return at, [], False
    return end, table, True


def _cells(text: str) -> list[tuple[int, int, str]]:
    """Return the start, end and text of what stands between gaps of two or more blanks."""
    return [(mark.start(), mark.end(), mark[0]) for mark in CELL.finditer(text)]


def _placed(text: str, names: Sequence[tuple[int, int, str]]) -> list[str] | None:
    """Return the cells of a row below the names of their columns; None if one of them stands below none or several."""
    cells = [""] * len(names)
    for start, end, cell in _cells(text):
        # Below a name, or to the right of one and before the next.
        below = [column for column, (left, right, _) in enumerate(names) if start < right and left < end]
        if not below:
            below = [column for column, (left, _, _) in enumerate(names) if left <= start][-1:]
        if len(below) != 1 or cells[below[0]]:
            return None
        cells[below[0]] = cell
    for (_, end, cell), (start, _, _) in pairwise(_cells(text)):
        if start - end < MIN_COLUMNS and cell:
            return None
    return cells
