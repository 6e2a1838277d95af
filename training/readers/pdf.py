"""PDF: the text of its pages by PDFium, without headers and footers. Scans have no text.

A line is a heading if it is in the document's outline, or its letters are larger than those of the text.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from kcard.errors import CorpusError
from kcard.training.readers.files import Block, Document
from kcard.training.readers.text import SENTENCE_END

EDGE = 2  # lines at the top and at the bottom of a page that may be its header and footer
NEARBY_PAGES = 4  # on which a header is compared; those of even and odd pages may differ
NUMERAL = re.compile(r"\d{1,9}")
PAGE_NUMBER = re.compile(r"\W*#(?:\s*/\s*#)?\W*")  # the shape of a line
HYPHEN = re.compile(r"(?<=[\w/])[-\u00ad]$")  # of a word, or of an address that is divided at a slash
SLASH = re.compile(r"\S/$")
DIVIDED = "\ufffe"  # PDFium's for the hyphen and the break of a divided word
LIGATURES = re.compile("[\ufb00-\ufb06]")
ITEM = re.compile(r"^[•‣▪◦●■–—*-]\s+(?=\S)")
LARGER = 1.15  # times the size of the text
LONGEST = 15  # words of a heading
NUMBER = re.compile(r"^(?:(?:Chapter|Appendix|Part)\s+)?(?:\d+|[A-Z])(?:\.\d+)*\.?\s+")
NUMBERED = re.compile(r"\d+(?:\.\d+)+(?=\s)")
LEADERS = re.compile(r"(?<!\.)(?<!\.\s)(?:\.\s?){5,}+\s*+(?:\d+|[ivxlc]+)$")


@dataclass(frozen=True)
class PageLine:
    """`size`: of its first letter, in points; `level`: of a heading, 0 of a line of text."""

    text: str
    size: float = 0.0
    level: int = 0


def read(document: Document) -> Iterator[Block]:
    """Read headings and paragraphs with their pages, 1-based. A paragraph across pages belongs to the page where it
    begins."""
    pages, outline = read_pages(document)
    # Without empty lines at both ends of a page.
    filled = [[at for at, line in enumerate(lines) if line.text] for lines in pages]
    pages = [lines[at[0] : at[-1] + 1] if at else [] for at, lines in zip(filled, pages, strict=True)]
    if not any(pages):
        raise CorpusError(
            f"{document.path} holds no text on its {len(pages)} pages: if it is a scan, run OCR on it"
        )
    pages = mark_headings(drop_edges(pages, document), outline)
    open_page, open_text = 0, ""
    for number, lines in enumerate(pages, 1):
        for paragraph in paragraphs_of(lines):
            if open_text and paragraph.level == 0 and paragraph.text[:1].islower():
                open_text = join_lines([open_text, paragraph.text])
                continue
            if open_text:
                yield _block(open_text, open_page)
                open_text = ""
            if paragraph.level:
                yield Block("heading", paragraph.text, number, paragraph.level)
            else:
                open_page, open_text = number, paragraph.text
    if open_text:
        yield _block(open_text, open_page)


def _block(text: str, page: int) -> Block:
    item = ITEM.match(text)
    return Block("item", f"- {text[item.end() :]}", page) if item else Block("text", text, page)


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
    lines, at = [], 0
    for line in text.split("\r\n"):
        size = float(raw.FPDFText_GetFontSize(page.raw, at)) if line.strip() else 0.0
        clean = LIGATURES.sub(
            lambda match: unicodedata.normalize("NFKC", match[0]), line.replace(DIVIDED, "")
        )
        clean = " ".join(unicodedata.normalize("NFC", clean).split())
        lines.append(PageLine(clean, round(size, 1)))
        at += len(line) + 2
    return lines


def drop_edges(pages: list[list[PageLine]], document: Document) -> list[list[PageLine]]:
    """Remove headers and footers: lines at the edge that recur on at least three pages and a third of all, and page
    numbers. Their numbers may count the pages; lines whose numbers differ otherwise stay, such as the total of each
    bill, and so do lines that end in a colon, which introduce the next one."""
    edges = [[(at, _shape(lines[at])) for at in _edges(lines)] for lines in pages]
    counts = Counter(shape for rows in edges for shape in {shape for _, shape in rows})
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
            expected = [(number, number + other - page) for number in _numbers(line)]
            nearby += other != page and any(
                all(map(tuple.__contains__, expected, values)) for values in numbers.get((other, shape), ())
            )
        return nearby >= 2

    cleaned = []
    for page, (lines, rows) in enumerate(zip(pages, edges, strict=True)):
        dropped = set()
        for at, shape in rows:
            if recurs(page, lines[at], shape):
                document.skips.dropped["page headers"] += 1
                dropped.add(at)
            elif PAGE_NUMBER.fullmatch(shape) and _numbers(lines[at]) in (
                (page + 1,),
                (page + 1, len(pages)),
            ):
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
    body = sizes.most_common(1)[0][0] if sizes else 0.0
    larger = sorted({size for size in sizes if size > LARGER * body}, reverse=True)

    def level(line: PageLine) -> int:
        if SENTENCE_END.search(line.text):
            return 0
        if level := outline.get(_key(line.text), 0):
            return level
        if line.size not in larger or line.text.count(" ") >= LONGEST or not any(map(str.isalpha, line.text)):
            return 0
        numbered = NUMBERED.match(line.text)
        return numbered[0].count(".") + 1 if numbered else 1 + larger.index(line.size)

    return [
        [PageLine(line.text, line.size, level(line)) for line in lines if not LEADERS.search(line.text)]
        for lines in pages
    ]


def _key(title: str) -> str:
    """Return a title without its number and punctuation."""
    return re.sub(r"[\W_]+", " ", NUMBER.sub("", title)).strip().casefold()


def paragraphs_of(lines: Sequence[PageLine]) -> Iterator[PageLine]:
    """Yield runs of lines. A run ends with a line that is clearly shorter than the others, unless the next one
    continues in lower case, and before a heading or list item."""
    lengths = sorted(len(line.text) for line in lines if line.text)
    full = lengths[len(lengths) * 9 // 10] if lengths else 0
    gathered: list[str] = []
    for line, following in zip(lines, chain(lines[1:], [PageLine("")]), strict=False):
        if line.level:
            yield line
            continue
        if line.text:
            gathered.append(line.text)
        next_text = following.text
        short = len(line.text) < 0.7 * full and not next_text[:1].islower()
        if gathered and (not next_text or short or following.level or ITEM.match(next_text)):
            yield PageLine(join_lines(gathered))
            gathered = []


def join_lines(lines: Sequence[str]) -> str:
    """Join lines into one text, and words, paths and addresses divided at a line's end."""
    text = ""
    for line in lines:
        end = text[-2:]
        if HYPHEN.search(end) and line[:1].islower():
            text = text[:-1] + line
        else:
            text += line if SLASH.search(end) and line[:1].isalnum() else f" {line}"
    return text.strip()
