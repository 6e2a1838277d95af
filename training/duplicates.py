"""Detect near duplicates and boilerplate in a corpus.

Two passages count as equal if they differ only in quotation marks, brackets and stops around words, or in how Unicode
writes a letter. "C" and "C++", "5" and "-5", "\\b" and "\\B" are not equal.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.training.readers.files import Block, Document

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Boilerplate: page numbers, tables of contents, copyright lines, buttons of web pages.
#
# The rules are narrow on purpose: keeping a footer costs little, dropping a statement loses it.

MAX_BOILERPLATE_CHARACTERS = 160

PAGE = re.compile(
    r"[-–—|\s]*(?:(?:page|p\.|pg\.?|seite|s\.|página|pág\.?|pagina|strona|str\.?|sida|side|стр\.?|страница)\s*"
    r"(?:\d+|[ivxlc]+)(?:\s*(?:of|/|von|de|di|z|av|из)\s*\d+)?|第\s*\d+\s*[页頁])[-–—|.\s]*",
    re.IGNORECASE,
)
FRAMED_PAGE = re.compile(r"[-–—]\s*\d{1,5}(?:\s*/\s*\d{1,5})?\s*[-–—]")  # "- 12 -"
LEADERS = re.compile(r".*?(?:(?:\.\s?){5,}|(?:…\s?){2,}|(?:·\s?){5,})(?:\d+|[ivxlc]+)", re.IGNORECASE)
COPYRIGHT = re.compile(
    r"(?:copyright\s*(?:©|\(c\))|©(?:\s*copyright)?)\s*(?:\d{4}|by\b).{0,120}"
    r"|(?:.{0,60}(?:©|\(c\)|copyright|\d{4}).{0,60})?\ball rights reserved\.?",
    re.IGNORECASE,
)
RIGHTS = re.compile("©|[Cc]opyright|COPYRIGHT|[Rr]eserved|RESERVED")
BUTTONS = frozenset(
    """
accept all|accept all cookies|accept cookies|back to top|cookie policy|cookie settings|cookie preferences
decline all|jump to content|jump to navigation|jump to search|log in|manage cookies|next page|previous page
privacy policy|reject all|scroll to top|share on facebook|share on twitter|share this page|sign in|sign up
site map|sitemap|skip to content|skip to main content|skip to navigation|subscribe to our newsletter
table of contents|terms and conditions|terms of service|terms of use|toggle navigation
""".strip().replace("\n", "|").split("|")
)  # fmt: skip


def is_mark(character: str) -> bool:
    """Return whether a character is a blank, punctuation or a line, of which rules consist: no letter, digit, sign of a
    currency or symbol."""
    return (
        character in "=+~|^`<>"
        or unicodedata.category(character)[0] in "PZC"
        or "\u2500" <= character < "\u25a0"
    )


def why_boilerplate(text: str) -> str | None:
    """Return why a passage is boilerplate, as a plural noun; None for one that is not."""
    if all(map(is_mark, text)):
        return "rules"
    if len(text) > MAX_BOILERPLATE_CHARACTERS:
        return None
    if len(text) <= 40 and (PAGE.fullmatch(text) or FRAMED_PAGE.fullmatch(text)):
        return "page numbers"
    if text[-1].isalnum() and LEADERS.fullmatch(text):
        return "lines of tables of contents"
    if RIGHTS.search(text) and COPYRIGHT.fullmatch(text):
        return "copyright lines"
    if len(text) <= 40 and text.strip(" .:»›→|").casefold() in BUTTONS:
        return "buttons of web pages"
    return None


OPENING_MARKS = "\"'“”‘’«»„‚([{¿¡「『《〈（【"
CLOSING_MARKS = "\"'“”‘’«»)]}.,;:!?…」』》〉）】。！？，、；：।॥؟،؛۔"
APOSTROPHES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})
SENTENCE_END = re.compile(r"[.!?:;。！？…।॥؟۔]")

# A line that ends no sentence is a header or footer if at least this many files, and half of all, repeat it.
MIN_REPEATING_FILES = 5
MAX_FOOTER_CHARACTERS = 80
ROWS_AT_ONCE = 1 << 18


def normal(text: str) -> str:
    """Return the normal form of a text, which equal passages share."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text).translate(APOSTROPHES)
    words: list[str] = []
    for word in text.split():
        # Few words have punctuation around them, so checking first is faster than stripping all.
        if not word.isalnum():
            word = word.lstrip(OPENING_MARKS).rstrip(CLOSING_MARKS)
        if word:
            words.append(word)
    return " ".join(words) or text


def fingerprint(text: str) -> bytes:
    """Return 16 bytes of a hash of the normal form."""
    return hashlib.blake2b(normal(text).encode(), digest_size=16).digest()


def could_be_repeated(text: str) -> bool:
    """Return whether a line of prose could be a header or footer: it is short and ends no sentence."""
    return len(text) <= MAX_FOOTER_CHARACTERS and not SENTENCE_END.search(text[-1:])


# The blocks of a document, with a fingerprint to detect repetitions.

DOCUMENT_CHARACTERS = (
    100_000  # characters of a document; a longer one is split, so that none need be in memory whole
)
PROSE_KINDS = ("text", "item", "statement")


@dataclass(frozen=True)
class DigestedBlock:
    """A block of a document with its fingerprint.

    begins  whether a document begins with it: a file of prose is one document, and so is each row of a table
    alone   whether it is independent of the file's earlier blocks, so that work may be divided before it
    line    whether it could be a header or footer that other files repeat
    text    whether it is not blank
    """

    block: Block
    printed: bytes
    begins: bool
    alone: bool
    line: bool
    text: bool


def digest_blocks(document: Document, blocks: Iterable[Block], *, prose: bool) -> Iterator[DigestedBlock]:
    """Yield the blocks without boilerplate, which is counted in the document's skip report."""
    row: tuple[str | None, int] | None = None
    size, structured, begins = 0, False, False
    for block in blocks:
        # Blocks of one document have these in common.
        last, row = row, (block.file, block.line)
        if prose or block.file:
            row = (block.file, 0)
        if row != last or size > DOCUMENT_CHARACTERS:
            begins, size = True, 0
        size += len(block.text)
        reason = None
        if block.text and block.kind in PROSE_KINDS:
            reason = why_boilerplate(block.text)
        if reason is not None:
            document.skips.dropped[reason] += 1
            continue
        structured = structured or block.kind in ("heading", "term")
        yield DigestedBlock(
            block,
            fingerprint(block.text),
            begins,
            block.kind == "statement" and not structured,
            prose and block.kind in PROSE_KINDS and could_be_repeated(block.text),
            bool(block.text.strip()),
        )
        begins = False


class Fingerprints:
    """Rows of passages: fingerprint, number of the file, and whether it could be a header or footer."""

    def __init__(self) -> None:
        import numpy as np

        from kcard.training.epochs import Scratch

        self._kind = np.dtype([("high", "<u8"), ("low", "<u8"), ("file", "<u4"), ("line", "<u4")])
        self._rows = Scratch()

    def __len__(self) -> int:
        return self._rows.size // self._kind.itemsize

    def append(self, printed: bytes, file: int, *, line: bool) -> None:
        """Add the fingerprint of a text. `line`: whether it could be a header or footer."""
        self._rows.append(printed + file.to_bytes(4, "little") + int(line).to_bytes(4, "little"))

    def truncate(self, count: int) -> None:
        """Forget all but the first `count` rows."""
        self._rows.truncate(count * self._kind.itemsize)

    def marks(self, files: int) -> "npt.NDArray[np.uint8]":
        """Mark each row: 0 the first of its kind, 1 a duplicate of an earlier one, 2 a line that many files repeat.

        `files`: how many files of prose were read. There is one pass over the rows for every quarter million of them,
        so that no more are in memory at once.
        """
        import numpy as np

        marks = np.zeros(len(self), np.uint8)
        parts = len(self) // ROWS_AT_ONCE + 1
        least = max(MIN_REPEATING_FILES, files / 2)
        for part in range(parts):
            rows, numbers = self._part(part, parts)
            order = np.lexsort((numbers, rows["low"], rows["high"]))
            rows, numbers = rows[order], numbers[order]
            # The runs of two or more rows with the same fingerprint.
            same = (rows["high"][1:] == rows["high"][:-1]) & (rows["low"][1:] == rows["low"][:-1])
            edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
            for start, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                end = last + 1
                marks[numbers[start + 1 : end]] = 1
                lines = end - start >= least and rows["line"][start:end].all()
                if lines and len(np.unique(rows["file"][start:end])) >= least:
                    marks[numbers[start:end]] = 2
        return marks

    def _part(self, part: int, parts: int) -> "tuple[npt.NDArray[np.void], npt.NDArray[np.int64]]":
        """Return the rows whose fingerprint falls into this part, and their numbers."""
        import numpy as np

        size = self._kind.itemsize
        selected, numbers = [np.empty(0, self._kind)], [np.empty(0, np.int64)]
        for first in range(0, len(self), ROWS_AT_ONCE):
            count = min(ROWS_AT_ONCE, len(self) - first)
            rows = np.frombuffer(self._rows.read(first * size, count * size), self._kind)
            here = np.flatnonzero(rows["high"] % np.uint64(parts) == part)
            selected.append(rows[here])
            numbers.append(here + first)
        return np.concatenate(selected), np.concatenate(numbers)
