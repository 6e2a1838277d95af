"""Tables on pages of PDF: lines that blank stripes divide into the same columns."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kcard.training.readers.text import SENTENCE_END
from kcard.training.readers.web_tables import has_digits, is_name, row_text

MIN_LINES = 3  # with the names of the columns
MIN_COLUMNS = 3  # of a table without names
MAX_LINES, MAX_WORDS = 200, 30  # of a table, and of one of its lines
MIN_STRIPE = (
    0.85  # width of a blank stripe between columns, times that of a letter; a single blank has .6 of it
)
MAX_SHARE = 0.8  # of the width of a page's longest line, up to which a line may be of a table
MAX_DISTANCE = 3.5  # of two lines, times the size of letters
MIN_WIDE = 1.15  # times the usual width of a letter with its blanks, from which a longer line may be as well
ITEM = re.compile(r"(?:[•‣▪◦●■–—*-]|\(?[\dA-Za-z]{1,3}[.)]|\d+(?:\.\d+)+)\s")
WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class TextSpan:
    """A line of a page: the place of its first letter in the text of the page, its text there, its left, right and
    lower end, and the size of its letters, in points."""

    at: int
    text: str
    left: float
    right: float
    bottom: float
    size: float

    @property
    def letter_width(self) -> float:
        return (self.right - self.left) / max(1, len(self.text.strip()))


def rows_of_page(page: Any, lines: Sequence[TextSpan]) -> dict[int, str]:
    """Return the texts of the lines that belong to tables, by their numbers: that of a row, and "" for the names of
    the columns and for a line that goes on with the row before it."""
    widths = sorted(line.letter_width for line in lines)
    if len(lines) < MIN_LINES:
        return {}
    usual = widths[len(widths) // 2]
    widest = max(line.right - line.left for line in lines)
    runs: list[list[int]] = [[]]
    for number, line in enumerate(lines):
        before = lines[number - 1]
        is_far = abs(before.bottom - line.bottom) > MAX_DISTANCE * line.size
        if is_far or before.size != line.size or len(runs[-1]) == MAX_LINES:
            runs.append([])
        if _may_be_row(line, usual, widest):
            runs[-1].append(number)
        else:
            runs.append([])
    rows: dict[int, str] = {}
    for run in runs:
        if len(run) >= MIN_LINES:
            rows |= _rows_of_run(page, lines, run, usual)
    return rows


def _may_be_row(line: TextSpan, usual: float, widest: float) -> bool:
    text = line.text.strip()
    if " " not in text or text.count(" ") >= MAX_WORDS or SENTENCE_END.search(text) or ITEM.match(text):
        return False
    return line.right - line.left <= MAX_SHARE * widest or line.letter_width >= MIN_WIDE * usual


def _rows_of_run(page: Any, lines: Sequence[TextSpan], run: Sequence[int], usual: float) -> dict[int, str]:
    words = []
    for number in run:
        words.append(_words(page, lines[number]))
    # The longest stretch of lines from the first one on that stripes divide; then the same from the line behind.
    rows: dict[int, str] = {}
    first = 0
    while first + MIN_LINES <= len(run):
        end, stripes = first, list[float]()
        for last in range(first + MIN_LINES, len(run) + 1):
            divided = _stripes(words[first:last], MIN_STRIPE * usual)
            if not divided or (stripes and len(divided) < len(stripes)):
                break
            end, stripes = last, divided
        is_bold = _weight(page, lines[run[first]]) > _weight(page, lines[run[first + 1]])
        texts = list[str]()
        if stripes:
            texts = _texts([_cells(line, stripes) for line in words[first:end]], is_bold=is_bold)
        if not texts:
            first += 1
            continue
        rows |= zip(run[first:end], texts, strict=True)
        first = end
    return rows


def _words(page: Any, line: TextSpan) -> list[tuple[float, float, str]]:
    """Return the left and right end of each word, in points, and its text."""
    words = []
    for word in WORD.finditer(line.text):
        left, _, _, _ = page.get_charbox(line.at + word.start(), loose=True)
        _, _, right, _ = page.get_charbox(line.at + word.end() - 1, loose=True)
        words.append((left, right, word[0]))
    return words


def _stripes(lines: Sequence[Sequence[tuple[float, float, str]]], width: float) -> list[float]:
    """Return the middle of each blank stripe that no word of the lines enters, and that stands between words of most of
    them."""
    places = sorted((left, right) for line in lines for left, right, _ in line)
    stripes = []
    reached = places[0][1]
    for left, right in places:
        if left - reached >= width:
            stripes.append((left + reached) / 2)
        reached = max(reached, right)
    dividing = []
    for stripe in stripes:
        divided = [line for line in lines if line[0][1] < stripe < line[-1][0]]
        if len(divided) > len(lines) / 2:
            dividing.append(stripe)
    return dividing


def _cells(line: Sequence[tuple[float, float, str]], stripes: Sequence[float]) -> list[str]:
    cells: list[list[str]] = [[] for _ in range(len(stripes) + 1)]
    for left, _, word in line:
        column = sum(stripe < left for stripe in stripes)
        cells[column].append(word)
    return [" ".join(cell) for cell in cells]


def _texts(grid: Sequence[list[str]], *, is_bold: bool) -> list[str]:
    """Return the texts of rows, see rows_of_page; none of two columns without names, which may be a list."""
    names, rows = grid[0], grid[1:]
    is_header = not names[0] and all(names[1:])
    if all(map(is_name, names)):
        has_values = any(has_digits(rows, column) for column in range(1, len(names)))
        is_header = is_bold or (len(names) > 2 and has_values)
    if not is_header and len(names) < MIN_COLUMNS:
        return []
    texts, header = [""], names
    if not is_header:
        texts, header, rows = [], [], grid
    whole: list[list[str]] = []
    places = []
    for row in rows:
        if whole and not row[0]:
            for column, cell in enumerate(row):
                whole[-1][column] = f"{whole[-1][column]} {cell}".strip()
        else:
            places.append(len(texts))
            whole.append(list(row))
        texts.append("")
    for place, row in zip(places, whole, strict=True):
        texts[place] = row_text(header, row)
    return texts


def _weight(page: Any, line: TextSpan) -> int:
    """Return the weight of a line's first letter: 400 is plain, 700 bold; -1 if it is unknown."""
    from pypdfium2 import raw

    return int(raw.FPDFText_GetFontWeight(page.raw, line.at))
