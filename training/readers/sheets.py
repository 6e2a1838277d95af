"""Spreadsheets (.xlsx): the rows of each sheet under the names of their columns, and texts above and below them.

Hidden sheets, rows and columns, and cells that are struck through, are left out, and counted. Formulas are read as the
values that were saved with them. A merged cell repeats its value.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from kcard.training.readers.files import Block, Document
from kcard.training.readers.markup import HIDDEN_WORDS, STRUCK_WORDS
from kcard.training.readers.packed import RELATION_ID, PackedDocument, is_on, local_name, unpack
from kcard.training.readers.tables import ANSWERS, QUESTIONS, distinct_names
from kcard.training.readers.web_tables import (
    DIGIT,
    MAX_HEADER_CHARACTERS,
    MAX_REPEATED_CELLS,
    has_digits,
    is_name,
    row_text,
)

MAIN_PART = "xl/workbook.xml"
SHEET_LEVEL, TABLE_LEVEL = 2, 3  # of headings
MAX_COLUMNS = 1000
MAX_TITLE_WORDS = 12

# Rows of texts as blocks.


@dataclass(frozen=True)
class SheetRow:
    """A row of a sheet: its number, the texts of its cells, which of them are numbers or dates, and whether all of them
    are bold."""

    number: int
    texts: Sequence[str]
    numeric: Sequence[bool]
    is_bold: bool = False

    @property
    def filled(self) -> int:
        return sum(map(bool, self.texts))


def sheet_blocks(name: str, rows: Sequence[SheetRow]) -> Iterator[Block]:
    """Yield a heading and the tables of a sheet, which empty rows divide. A row of one cell over a table is its
    title; elsewhere it is a text."""
    yield Block("heading", name, rows[0].number if rows else 1, SHEET_LEVEL)
    table: list[SheetRow] = []
    for at, row in enumerate(rows):
        is_alone = row.filled == 1 and not table
        if table and not row.filled:
            yield from table_of(table)
            table = []
        if is_alone:
            text = "".join(row.texts)
            if text.count(" ") < MAX_TITLE_WORDS and is_over_table(rows[at + 1 : at + 3]):
                yield Block("heading", text, row.number, TABLE_LEVEL)
            else:
                yield Block("text", text, row.number)
        elif row.filled:
            table.append(row)
    if table:
        yield from table_of(table)


def is_over_table(following: Sequence[SheetRow]) -> bool:
    """Return whether the first of these rows that has text has several cells."""
    for row in following:
        if row.filled:
            return row.filled > 1
    return False


def table_of(rows: Sequence[SheetRow]) -> Iterator[Block]:
    # Without the columns that are empty in all rows.
    columns: set[int] = set()
    for row in rows:
        columns.update(at for at, text in enumerate(row.texts) if text)
    grid: list[list[str]] = []
    numeric: list[list[bool]] = []
    for row in rows:
        texts, numbers = list[str](), list[bool]()
        for at in sorted(columns):
            is_there = at < len(row.texts)
            texts.append(row.texts[at] if is_there else "")
            numbers.append(is_there and row.numeric[at])
        grid.append(texts)
        numeric.append(numbers)
    bold = [row.is_bold for row in rows]
    yield from table_blocks(grid, has_names(grid, numeric, bold), [row.number for row in rows])


def table_blocks(grid: Sequence[Sequence[str]], names_first: bool, numbers: Sequence[int]) -> Iterator[Block]:
    """Yield the rows of a table as items; `names_first`: whether the first row names the columns, `numbers`: the places
    of the rows."""
    if not names_first and grid:
        names_first = has_digits_below(grid)
    header: list[str] = []
    first = 0
    if names_first and grid[0]:
        first = 1
        for cell, name in zip(grid[0], distinct_names(grid[0]), strict=True):
            header.append(name if cell else "")
    for cells, number in zip(grid[first:], numbers[first:], strict=True):
        text = row_text(header, cells)
        if text:
            yield Block("item", text, number)


def has_names(grid: Sequence[Sequence[str]], numeric: Sequence[Sequence[bool]], bold: Sequence[bool]) -> bool:
    """Return whether the first row of a table names the columns: it lacks the first name alone, is bold as no other, is
    of questions and answers, or has short texts without digits, in three columns or over numbers."""
    first = grid[0]
    if len(grid) < 2 or len(first) < 2 or not all(first[1:]):
        return False
    if any(len(text) > MAX_HEADER_CHARACTERS for text in first):
        return False
    if not first[0] or (bold[0] and not all(bold)):
        return True
    if first[0].lower() in QUESTIONS and first[1].lower() in ANSWERS:
        return True
    if any(numeric[0]) or any(map(DIGIT.search, first)):
        return False
    return len(first) > 2 or all(row[1] for row in numeric[1:])


def has_digits_below(grid: Sequence[Sequence[str]]) -> bool:
    """Return whether a first row of short words stands over a column with digits in all rows, or of two columns over
    two such."""
    first, others = grid[0], grid[1:]
    if len(first) < 2 or len(others) < 2:
        return False
    if not all(map(is_name, first)):
        return False
    count = sum(has_digits(others, column) for column in range(len(first)))
    return count > (len(first) == 2)


# Workbooks.


def read_sheets(document: Document) -> Iterator[Block]:
    """Read the rows of all sheets with their numbers in them."""
    with unpack(document, "a workbook (.xlsx)") as package:
        workbook = package.tree(MAIN_PART)
        if workbook is None:
            raise KeyError(MAIN_PART)
        relations = package.relations(MAIN_PART)
        yield from package.properties("docProps/core.xml")
        settings = workbook.find("{*}workbookPr")
        is_1904 = settings is not None and is_on(settings.get("date1904", ""))
        book = Workbook(package, document, shared_strings(package), read_styles(package, is_1904))
        for sheet in workbook.iterfind("{*}sheets/{*}sheet"):
            kind, name = relations.get(sheet.get(RELATION_ID), ("", ""))
            if kind != "worksheet":
                continue
            root = package.tree(name)
            if root is None:
                document.skips.dropped["missing sheets"] += 1
                continue
            rows = book.rows(root)
            if sheet.get("state", "visible") != "visible":
                document.skips.dropped[HIDDEN_WORDS] += sum(len(" ".join(row.texts).split()) for row in rows)
            elif rows:
                yield from sheet_blocks(sheet.get("name", ""), rows)


def shared_strings(package: PackedDocument) -> list[str]:
    root = package.tree("xl/sharedStrings.xml")
    if root is None:
        return []
    return [rich_text(entry) for entry in root.iterfind("{*}si")]


def rich_text(entry: Any) -> str:
    """Return a string without the parts that are struck through, and without how it is pronounced."""
    text = ""
    for part in entry:
        if local_name(part) == "t":
            text += part.text or ""
        elif local_name(part) == "r" and not is_property_on(part.find("{*}rPr/{*}strike")):
            text += "".join(inner.text or "" for inner in part.iterfind("{*}t"))
    return text


def is_property_on(element: Any) -> bool:
    return element is not None and is_on(element.get("val", "1"))


@dataclass(frozen=True)
class CellStyle:
    """How a cell is shown; `pattern`: of its number, in Excel's notation."""

    pattern: str = ""
    is_struck: bool = False
    is_bold: bool = False
    is_1904: bool = False


# Numbers of the patterns that are not written into a workbook.
BUILT_IN = {
    9: "0%", 10: "0.00%", 14: "yyyy-mm-dd", 15: "yyyy-mm-dd", 16: "mm-dd", 17: "yyyy-mm", 18: "h:mm", 19: "h:mm:ss",
    20: "h:mm", 21: "h:mm:ss", 22: "yyyy-mm-dd h:mm", 45: "mm:ss", 46: "[h]:mm:ss", 47: "mm:ss",
}  # fmt: skip


def read_styles(package: PackedDocument, is_1904: bool) -> list[CellStyle]:
    root = package.tree("xl/styles.xml")
    if root is None:
        return []
    patterns = dict(BUILT_IN)
    for entry in root.iterfind("{*}numFmts/{*}numFmt"):
        patterns[int(entry.get("numFmtId", 0))] = entry.get("formatCode", "")
    fonts = [*root.iterfind("{*}fonts/{*}font")]
    styles = []
    for entry in root.iterfind("{*}cellXfs/{*}xf"):
        pattern = patterns.get(int(entry.get("numFmtId", 0)), "")
        style = CellStyle(pattern, is_1904=is_1904)
        number = int(entry.get("fontId", 0))
        if number < len(fonts):
            font = fonts[number]
            is_struck, is_bold = is_property_on(font.find("{*}strike")), is_property_on(font.find("{*}b"))
            style = replace(style, is_struck=is_struck, is_bold=is_bold)
        styles.append(style)
    return styles


@dataclass(frozen=True)
class Workbook:
    package: PackedDocument
    document: Document
    strings: Sequence[str]
    styles: Sequence[CellStyle]
    plain: CellStyle = field(default_factory=CellStyle)

    def rows(self, root: Any) -> list[SheetRow]:
        """Return the rows that are shown, with an empty one for each gap."""
        skips = self.document.skips
        hidden: set[int] = set()
        for entry in root.iterfind("{*}cols/{*}col"):
            if is_on(entry.get("hidden", "")):
                last = min(int(entry.get("max", 1)), MAX_COLUMNS)
                hidden.update(range(int(entry.get("min", 1)) - 1, last))
        merged = merged_cells(root)
        rows: list[SheetRow] = []
        values: dict[tuple[int, int], tuple[str, bool]] = {}  # of merged cells, by the first one
        number = 0
        for entry in root.iterfind("{*}sheetData/{*}row"):
            before = number
            number = int(entry.get("r", number + 1))
            is_hidden = is_on(entry.get("hidden", ""))
            cells, is_bold = self.cells(entry)
            for column, value in cells.items():
                values[number, column] = value
            for column, first in merged.get(number, {}).items():
                if column not in cells and first in values:
                    cells[column] = values[first]
            texts, numeric = list[str](), list[bool]()
            for column in range(max(cells, default=-1) + 1):
                text, is_number = cells.get(column, ("", False))
                if is_hidden or column in hidden:
                    skips.dropped[HIDDEN_WORDS] += len(text.split())
                else:
                    texts.append(text)
                    numeric.append(is_number)
            if is_hidden:
                continue
            if number > before + 1:
                rows.append(SheetRow(number - 1, [], []))
            rows.append(SheetRow(number, texts, numeric, is_bold))
        return rows

    def cells(self, row: Any) -> tuple[dict[int, tuple[str, bool]], bool]:
        """Return the cells that have text, by column: the text, and whether it is a number; and whether all of them are
        bold."""
        cells: dict[int, tuple[str, bool]] = {}
        is_bold = True
        column = -1
        for cell in row.iterfind("{*}c"):
            place = cell.get("r")
            column = column_of(place) if place else column + 1
            style = self.style_of(cell)
            text, is_number = self.value_of(cell, style)
            if not text or column >= MAX_COLUMNS:
                continue
            if style.is_struck:
                self.document.skips.dropped[STRUCK_WORDS] += len(text.split())
                continue
            cells[column] = (text, is_number)
            is_bold = is_bold and style.is_bold
        return cells, is_bold and bool(cells)

    def style_of(self, cell: Any) -> CellStyle:
        number = int(cell.get("s", 0))
        if number < len(self.styles):
            return self.styles[number]
        return self.plain

    def value_of(self, cell: Any, style: CellStyle) -> tuple[str, bool]:
        """Return the text of a cell, and whether it is a number or date."""
        kind = cell.get("t", "n")
        inline, entry = cell.find("{*}is"), cell.find("{*}v")
        value = ""
        if entry is not None:
            value = entry.text or ""
        if inline is not None:
            value = rich_text(inline)
        elif kind == "s":
            number = int(value or -1)
            value = ""
            if 0 <= number < len(self.strings):
                value = self.strings[number]
        elif kind == "b":
            value = {"1": "TRUE", "0": "FALSE"}.get(value, value)
        elif kind == "e":
            value = ""
        elif kind == "n" and value:
            return shown_number(float(value), style), True
        lines = map(str.strip, value.splitlines())
        return "; ".join(filter(None, lines)), kind == "d"


def column_of(place: str) -> int:
    """Return the column of a place such as "AB12", from 0."""
    column = 0
    for letter in place.upper():
        if not "A" <= letter <= "Z":
            break
        column = 26 * column + ord(letter) - 64
    return column - 1


def row_of(place: str) -> int:
    """Return the row of a place such as "AB12"."""
    return int(re.sub(r"\D", "", place) or 0)


def merged_cells(root: Any) -> dict[int, dict[int, tuple[int, int]]]:
    """Return the cells that another one covers: by row and column, the row and column of that one. One that covers a
    whole row from the first column on is a title, and not repeated."""
    merged: dict[int, dict[int, tuple[int, int]]] = {}
    count = 0
    for entry in root.iterfind("{*}mergeCells/{*}mergeCell"):
        first, _, last = entry.get("ref", "").partition(":")
        last = last or first
        top, bottom = row_of(first), row_of(last)
        left, right = column_of(first), min(column_of(last), MAX_COLUMNS)
        count += max(0, bottom - top + 1) * max(0, right - left + 1)
        if count > MAX_REPEATED_CELLS or (top == bottom and left == 0 and right > 1):
            continue
        for row in range(top, bottom + 1):
            merged.setdefault(row, {}).update(dict.fromkeys(range(left, right + 1), (top, left)))
    return merged


# Numbers as they are shown.

# Of a pattern, which has others for negative numbers, zero and texts.
FIRST_SECTION = re.compile(r'(?:"[^"]*"|\\.|\[[^\]]*\]|[^;])*')
SIGN = re.compile(r"\[\$([^\]-]*)[^\]]*\]")  # of a currency
LITERAL = re.compile(r'"([^"]*)"|\\(.)|[_*].|\[[^\]]*\]')
DATE = re.compile(r"[ymdhs]", re.IGNORECASE)
DIGITS = re.compile(r"[#0?][#0?,.]*")
MAX_DECIMALS = 10


def shown_number(value: float, style: CellStyle) -> str:
    """Return a number as a cell shows it: a date in ISO's form, a share in percent, an amount with its currency."""
    section = FIRST_SECTION.match(style.pattern)
    assert section is not None  # it may be empty
    pattern = section[0]
    bare = LITERAL.sub("", SIGN.sub("", pattern))
    if DATE.search(bare) and "general" not in bare.lower():
        return shown_date(value, bare, style.is_1904)
    words = LITERAL.sub(lambda part: part[1] or part[2] or "", SIGN.sub(r"\1", pattern))
    digits = DIGITS.search(words)
    if digits is None:
        return f"{value:.15g}"
    if "%" in bare:
        value *= 100
    decimals = digits[0].partition(".")[2]
    text = f"{value:.12g}"
    if "0" in decimals and len(decimals) <= MAX_DECIMALS:
        text = f"{value:.{len(decimals)}f}"
    return f"{words[: digits.start()].lstrip()}{text}{words[digits.end() :].rstrip()}"


def shown_date(value: float, pattern: str, is_1904: bool) -> str:
    first = datetime(1899, 12, 30)
    if is_1904:
        first = datetime(1904, 1, 1)
    try:
        moment = first + timedelta(seconds=round(value * 86_400))
    except OverflowError:
        return f"{value:.15g}"
    letters = set(pattern.lower())
    has_time = not letters.isdisjoint("hs")
    has_day = not letters.isdisjoint("yd") or not has_time
    form = ""
    if has_day:
        form = "%Y-%m-%d "
    if has_time:
        form += "%H:%M:%S" if moment.second else "%H:%M"
    return moment.strftime(form).strip()
