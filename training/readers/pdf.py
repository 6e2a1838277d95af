"""PDF: the text of its pages by PDFium, without headers and footers. Scans have no text.

A line is a heading if it is in the document's outline, or its letters are larger than those of the text. The
rows of tables become items.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, pairwise
from typing import Any

from kcard.errors import CorpusError
from kcard.training.readers.files import Block, Document
from kcard.training.readers.pdf_tables import TextSpan, rows_of_page
from kcard.training.readers.text import SENTENCE_END

EDGE = 2  # lines at the top and at the bottom of a page that may be its header and footer
NEARBY_PAGES = 4  # on which a header is compared; those of even and odd pages may differ
NUMERAL = re.compile(r"\d{1,9}")
PAGE_NUMBER = re.compile(r"\W*#(?:\s*/\s*#)?\W*")  # the shape of a line
HYPHEN = re.compile(r"(?<=[\w/])[-\u00ad\ufffe]$")  # of a word, or of an address that is divided at a slash
SLASH = re.compile(r"\S/$")
DIVIDED_WORD = "\ufffe"  # PDFium's for the hyphen and the break of a divided word
LINE_END = re.compile("\r\n|(?<=\ufffe)")
WORD = re.compile(r"\w+(?:-\w+)*")
LAST_WORD = re.compile(r"\w+(?:-\w+)*$")
# Before a word they may keep their hyphen.
_PREFIXES = "anti co ex mid multi non post pre re self semi sub ultra well"
PREFIXES = frozenset(_PREFIXES.split())
MIN_FIRST_LETTERS = 4  # letters of a word that others may follow after a hyphen
LIGATURES = re.compile("[\ufb00-\ufb06]")
ITEM = re.compile(r"^[•‣▪◦●■–—*-]\s+(?=\S)")
MIN_HEADING_SIZE = 1.15  # times that of the text
MAX_HEADING_WORDS = 15  # words of a heading
NUMBER = re.compile(r"^(?:(?:Chapter|Appendix|Part)\s+)?(?:\d+|[A-Z])(?:\.\d+)*\.?\s+")
NUMBERED_HEADING = re.compile(r"\d+(?:\.\d+)+(?=\s)")
LEADERS = re.compile(r"(?<!\.)(?<!\.\s)(?:\.\s?){5,}+\s*+(?:\d+|[ivxlc]+)$")


@dataclass(frozen=True)
class PageLine:
    """A line and its place, in points; `size`: of its first letter, `level`: of a heading, 0 of a line of text,
    `is_row`: whether it is a row of a table."""

    text: str
    size: float = 0.0
    level: int = 0
    left: float = 0.0
    right: float = 0.0
    bottom: float = 0.0
    is_row: bool = False

    @property
    def first_word_width(self) -> float:
        """The width of its first word and the blank before it."""
        first = self.text.partition(" ")[0]
        return (self.right - self.left) * (len(first) + 1) / max(1, len(self.text))


def read(document: Document) -> Iterator[Block]:
    """Read headings and paragraphs with their pages, 1-based. A paragraph across pages belongs to the page where it
    begins."""
    pages, outline = read_pages(document)
    # Without empty lines at both ends of a page.
    pages = list(map(without_empty_edges, pages))
    if not any(pages):
        raise CorpusError(
            f"{document.path} holds no text on its {len(pages)} pages: if it is a scan, run OCR on it"
        )
    pages = mark_headings(drop_edges(pages, document), outline)
    division = WordDivision(line.text for line in chain.from_iterable(pages))
    open_page, open_lines = 0, list[PageLine]()
    column = Column.of([])
    for number, lines in enumerate(pages, 1):
        for next_column in columns_of(lines):
            before, column = column, next_column
            for at, paragraph in enumerate(column.paragraphs()):
                if open_lines and at == 0 and before.goes_on(open_lines[-1], paragraph):
                    open_lines = [*open_lines, *paragraph]
                    continue
                if open_lines:
                    yield _block(division.join(open_lines), open_page)
                    open_lines = []
                if paragraph[0].is_row:
                    yield Block("item", paragraph[0].text, number)
                elif paragraph[0].level:
                    yield Block("heading", paragraph[0].text, number, paragraph[0].level)
                else:
                    open_page, open_lines = number, paragraph
    if open_lines:
        yield _block(division.join(open_lines), open_page)


def _block(text: str, page: int) -> Block:
    item = ITEM.match(text)
    if item is None:
        return Block("text", text, page)
    return Block("item", f"- {text[item.end() :]}", page)


def without_empty_edges(lines: list[PageLine]) -> list[PageLine]:
    start, end = 0, len(lines)
    while end and not lines[end - 1].text:
        end -= 1
    while start < end and not lines[start].text:
        start += 1
    return lines[start:end]


def read_pages(document: Document) -> tuple[list[list[PageLine]], dict[str, int]]:
    """Return the lines of each page, and the titles of the outline with their levels."""
    import pypdfium2

    try:
        pdf = pypdfium2.PdfDocument(document.path)
        try:
            pages = [lines_of(page.get_textpage()) for page in pdf]
            outline = {_key(mark.get_title()): mark.level + 1 for mark in pdf.get_toc()}
        finally:
            pdf.close()
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise CorpusError(f"{document.path} is encrypted: save it without a password") from error
        raise CorpusError(f"{document.path} can't be read as PDF ({error}): is it damaged?") from error
    except OSError as error:
        raise CorpusError(
            f"{document.path} can't be read ({error.strerror}): check its permissions"
        ) from error
    outline.pop("", None)
    return pages, outline


def lines_of(page: Any) -> list[PageLine]:
    from pypdfium2 import raw

    text = page.get_text_range()
    borders = [mark.span() for mark in LINE_END.finditer(text)]
    lines: list[PageLine] = []
    spans, at = list[TextSpan](), 0
    places = []  # of the lines that have text
    for end, next_line in [*borders, (len(text), len(text))]:
        line = text[at:end]
        clean = LIGATURES.sub(lambda match: unicodedata.normalize("NFKC", match[0]), line)
        clean = " ".join(unicodedata.normalize("NFC", clean).split())
        if clean:
            size = float(raw.FPDFText_GetFontSize(page.raw, at))
            last = at + len(line.rstrip().removesuffix(DIVIDED_WORD)) - 1
            left, bottom, _, _ = page.get_charbox(at, loose=True)
            _, _, right, _ = page.get_charbox(last, loose=True)
            places.append(len(lines))
            spans.append(TextSpan(at, line, left, right, bottom, size))
            lines.append(PageLine(clean, round(size, 1), 0, left, right, bottom))
        else:
            lines.append(PageLine(""))
        at = next_line
    for number, row in rows_of_page(page, spans).items():
        place = places[number]
        lines[place] = replace(lines[place], text=row, is_row=bool(row))
    return lines


def drop_edges(pages: list[list[PageLine]], document: Document) -> list[list[PageLine]]:
    """Remove headers and footers: lines at the edge that recur on at least three pages and a third of all, and page
    numbers. Their numbers may count the pages; lines whose numbers differ otherwise stay, such as the total of each
    bill, and so do lines that end in a colon, which introduce the next one."""
    edges: list[list[tuple[int, str]]] = []  # of each page: places of lines, and their shapes
    counts: Counter[str] = Counter()
    for lines in pages:
        rows = [(at, _shape(lines[at])) for at in _edges(lines)]
        edges.append(rows)
        counts.update({shape for _, shape in rows})
    least = max(3, len(pages) / 3)
    common = {shape for shape, count in counts.items() if count >= least and not shape.endswith(":")}
    # The numbers of such lines, by page.
    numbers: dict[tuple[int, str], list[tuple[int, ...]]] = {}
    for page, rows in enumerate(edges):
        for at, shape in rows:
            if shape in common:
                numbers.setdefault((page, shape), []).append(_numbers(pages[page][at]))

    def recurs(page: int, line: PageLine, shape: str) -> bool:
        """Return whether two pages nearby have the line, with numbers that are equal or count the pages."""
        if shape not in common:
            return False
        nearby = 0
        for other in range(page - NEARBY_PAGES, page + NEARBY_PAGES + 1):
            if other == page:
                continue
            for values in numbers.get((other, shape), ()):
                steps = [value - number for value, number in zip(values, _numbers(line), strict=True)]
                if set(steps) <= {0, other - page}:
                    nearby += 1
                    break
        return nearby >= 2

    cleaned = []
    for page, (lines, rows) in enumerate(zip(pages, edges, strict=True)):
        dropped = set()
        own_numbers = ((page + 1,), (page + 1, len(pages)))
        for at, shape in rows:
            if recurs(page, lines[at], shape):
                document.skips.dropped["page headers"] += 1
                dropped.add(at)
            elif PAGE_NUMBER.fullmatch(shape) and _numbers(lines[at]) in own_numbers:
                document.skips.dropped["page numbers"] += 1
                dropped.add(at)
        cleaned.append([line for at, line in enumerate(lines) if at not in dropped])
    return cleaned


def _edges(lines: Sequence[PageLine]) -> list[int]:
    filled = [at for at, line in enumerate(lines) if line.text]
    return sorted({*filled[:EDGE], *filled[-EDGE:]})


def _shape(line: PageLine) -> str:
    return NUMERAL.sub("#", line.text.casefold())


def _numbers(line: PageLine) -> tuple[int, ...]:
    return tuple(int(numeral) for numeral in NUMERAL.findall(line.text.casefold()))


def mark_headings(pages: list[list[PageLine]], outline: dict[str, int]) -> list[list[PageLine]]:
    """Return the lines with their heading levels, without those of a table of contents."""
    sizes = Counter[float]()
    for line in chain.from_iterable(pages):
        sizes[line.size] += len(line.text)
    body = max(sizes, key=sizes.__getitem__, default=0.0)
    larger = sorted((size for size in sizes if size > MIN_HEADING_SIZE * body), reverse=True)

    def level(line: PageLine) -> int:
        if line.is_row or SENTENCE_END.search(line.text):
            return 0
        outline_level = outline.get(_key(line.text), 0)
        if outline_level:
            return outline_level
        if line.size not in larger or line.text.count(" ") >= MAX_HEADING_WORDS:
            return 0
        if not any(map(str.isalpha, line.text)):
            return 0
        numbered = NUMBERED_HEADING.match(line.text)
        if numbered is not None:
            return numbered[0].count(".") + 1
        return 1 + larger.index(line.size)

    marked = []
    for lines in pages:
        shown = [line for line in lines if not LEADERS.search(line.text)]
        marked.append([replace(line, level=level(line)) for line in shown])
    return marked


def _key(title: str) -> str:
    """Return a title without its number and punctuation."""
    return re.sub(r"[\W_]+", " ", NUMBER.sub("", title)).strip().casefold()


# Paragraphs of the columns of a page.

FULL_SHARE = 0.9  # of a column's lines that are not longer than a full one
MIN_WRAPPED_SHARE = 0.5  # of the letters of a full line, which no wrapped line has fewer than
PARAGRAPH_GAP = 1.5  # times the usual distance of lines
OTHER_SIZE = 1.5  # points by which footnotes differ from the text


@dataclass(frozen=True)
class Column:
    """Lines that stand below each other; `edge`: where full ones end, in points, `length`: their letters, `gap`: the
    usual distance of lines, in points."""

    lines: Sequence[PageLine]
    edge: float
    length: int
    gap: float

    @classmethod
    def of(cls, lines: Sequence[PageLine]) -> "Column":
        filled = [line for line in lines if line.text and not line.level]
        if not filled:
            return cls(lines, 0.0, 0, 0.0)
        last = int(FULL_SHARE * (len(filled) - 1) + 0.5)
        edges = sorted(line.right for line in filled)
        lengths = sorted(len(line.text) for line in filled)
        gaps = sorted(above.bottom - below.bottom for above, below in pairwise(filled))
        gap = gaps[len(gaps) // 2] if gaps else 0.0
        return cls(lines, edges[last], lengths[last], gap)

    def is_ended(self, line: PageLine, following: PageLine) -> bool:
        """Return whether a line was ended on purpose: the first word of the next one would fit into it."""
        return (
            self.edge - line.right > following.first_word_width
            or len(line.text) < MIN_WRAPPED_SHARE * self.length
        )

    def goes_on(self, line: PageLine, paragraph: Sequence[PageLine]) -> bool:
        """Return whether the last line goes on in the first paragraph of the next column, on this page or another. A
        line alone that ends no sentence may be the header of the page."""
        following = paragraph[0]
        if following.level or following.is_row or ITEM.match(following.text) or line.text.endswith(":"):
            return False
        if following.text[:1].islower() or HYPHEN.search(line.text[-2:]):
            return True
        is_prose = len(paragraph) > 1 or bool(SENTENCE_END.search(following.text))
        is_prose = is_prose and abs(line.size - following.size) < OTHER_SIZE
        return is_prose and not SENTENCE_END.search(line.text) and not self.is_ended(line, following)

    def paragraphs(self) -> Iterator[list[PageLine]]:
        """Yield the lines of each paragraph. It ends with a line that was ended on purpose or stands far above the next
        one, unless that one continues in lower case, and before a heading or list item."""
        gathered: list[PageLine] = []
        for line, following in zip(self.lines, chain(self.lines[1:], [PageLine("")]), strict=False):
            if line.level or line.is_row:
                yield [line]
                continue
            if line.text:
                gathered.append(line)
            is_far = line.bottom - following.bottom > PARAGRAPH_GAP * self.gap > 0
            continues = following.text[:1].islower() or bool(HYPHEN.search(line.text[-2:]))
            ends = (is_far or self.is_ended(line, following)) and not continues
            if gathered and (
                not following.text
                or ends
                or following.level
                or following.is_row
                or ITEM.match(following.text)
            ):
                yield gathered
                gathered = []


def columns_of(lines: Sequence[PageLine]) -> Iterator[Column]:
    """Divide the lines of a page where one stands higher than that before it, or beside it."""
    gathered: list[PageLine] = []
    for line in lines:
        before = gathered[-1] if gathered else line
        is_higher = line.bottom > before.bottom + before.size / 2
        is_beside = line.left >= before.right and line.bottom > before.bottom - before.size / 2
        if line.text and before.text and (is_higher or is_beside):
            yield Column.of(gathered)
            gathered = []
        gathered.append(line)
    yield Column.of(gathered)


class WordDivision:
    """Joins lines into one text, and the words, paths and addresses that are divided at their ends.

    A word keeps its own hyphen: as the document writes it elsewhere, else as its parts suggest.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._words: set[str] = set()
        for text in texts:
            self._words.update(word.lower() for word in WORD.findall(text.removesuffix(DIVIDED_WORD)))

    def join(self, lines: Sequence[PageLine]) -> str:
        text = ""
        for line in lines:
            follows = line.text
            end = text[-2:]
            begins_word = follows[:1].isalnum()
            if HYPHEN.search(end) and begins_word:
                keeps = self.keeps_hyphen(text[:-1], follows)
                if keeps:
                    text = f"{text[:-1]}-{follows}"
                elif end[-1] != "-" or follows[:1].islower():
                    text = text[:-1] + follows
                else:
                    text += f" {follows}"
            elif SLASH.search(end) and begins_word:
                text += follows
            else:
                text += f" {follows}"
        return text.replace(DIVIDED_WORD, "").strip()

    def keeps_hyphen(self, before: str, after: str) -> bool:
        left, right = LAST_WORD.search(before), WORD.match(after)
        if left is None or right is None:
            return False
        first, second = left[0].lower(), right[0].lower()
        if f"{first}-{second}" in self._words:
            return True
        if first + second in self._words:
            return False
        if "-" in first + second or len(first) == 1 or any(map(str.isdigit, first)) or right[0][0].isupper():
            return True
        if left[0].isupper() and len(first) > 1:
            return True
        common = common_words()
        if first + second in common or second not in common:
            return False
        return first in PREFIXES or (first in common and len(first) >= MIN_FIRST_LETTERS)


@cache
def common_words() -> frozenset[str]:
    """Return the common words of English."""
    from kcard.embedded import minilm

    words = (minilm.folder() / "vocab.txt").read_text(encoding="utf-8").split("\n")
    return frozenset(word for word in words if word.isalpha() and len(word) > 2)
