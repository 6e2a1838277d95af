"""Plain text, and the lines of a text file in whatever encoding."""

import codecs
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, groupby, islice, pairwise
from pathlib import Path
from typing import BinaryIO

from kcard.errors import CorpusError
from kcard.training.duplicates import is_mark
from kcard.training.readers import layout
from kcard.training.readers.drawn_tables import find_tables
from kcard.training.readers.encodings import GUESSED_BYTES, guess_encoding, marked_encoding
from kcard.training.readers.files import CONTINUED_LEVEL, Block, Document, reading

# Lines of a UTF-8 file, streamed: neither the file nor an endless line is ever held whole.

CHUNK_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 26
BOM_BYTES = 4


def lines(
    path: Path, *, whole: bool = False, nul: bool = False, encoding: str = "utf-8"
) -> Iterator[tuple[int, str]]:
    """Yield (number, line), 1-based, without the line end: \\n, \\r\\n or \\r. A byte order mark is left out; that of
    UTF-16 or UTF-32 decides the encoding.

    A line above 256 kB comes in parts under the same number, cut after white space; with `whole`, lines up to 64 MB
    come complete. Raises CorpusError, naming file and line, for bytes that are not UTF-8, for NUL (unless `nul`
    allows it) and for longer lines. `encoding`: UTF-8, or one with a byte for each character.
    """
    with reading(path), path.open("rb") as stream, ExitStack() as stack:
        source: BinaryIO = stream
        marked = marked_encoding(stream.read(BOM_BYTES))
        stream.seek(0)
        if marked is not None and marked != "utf-8-sig":
            source = stack.enter_context(tempfile.TemporaryFile())
            to_utf8(stream, source, marked, path)
        yield from _lines(source, path, whole, nul, encoding)


def to_utf8(stream: BinaryIO, target: BinaryIO, encoding: str, path: Path) -> None:
    """Write a text in UTF-16 or UTF-32 as UTF-8, and return to its beginning. Raises CorpusError for other bytes."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
            target.write(decoder.decode(chunk).encode("utf-8"))
        target.write(decoder.decode(b"", final=True).encode("utf-8"))
    except UnicodeError as error:
        raise CorpusError(
            f"{path} begins as {encoding.upper()} text, but is none ({error}): convert the file to UTF-8 or remove it "
            "from the corpus"
        ) from None
    target.seek(0)


def _lines(stream: BinaryIO, path: Path, whole: bool, nul: bool, encoding: str) -> Iterator[tuple[int, str]]:
    max_bytes = MAX_LINE_BYTES if whole else CHUNK_BYTES
    number, rest = 1, b""
    while True:
        chunk = rest + stream.readline(max_bytes - len(rest))
        if not chunk:
            return
        rest = b""
        ended = chunk.endswith(b"\n") or len(chunk) < max_bytes
        if not ended and whole:
            raise CorpusError(f"{path}:{number} is a line of more than {max_bytes >> 20} MB: split it")
        if not ended:
            # Cut after the last blank or else between two characters; the rest is short.
            at = chunk.rfind(b" ", len(chunk) // 2) + 1
            if not at:
                at = len(chunk) - 1
                while at > len(chunk) - 4 and 0x80 <= chunk[at] < 0xC0:
                    at -= 1
            chunk, rest = chunk[:at], chunk[at:]
        text = decode(chunk, path, number, nul, encoding)
        if number == 1:
            text = text.removeprefix("\ufeff")
        *before, last = text.rstrip("\n").removesuffix("\r").split("\r")
        for line in before:
            yield number, line
            number += 1
        yield number, last
        number += ended


def decode(chunk: bytes, path: Path, number: int, nul: bool, encoding: str) -> str:
    try:
        text = chunk.decode(encoding)
    except UnicodeDecodeError as error:
        line = number + chunk[: error.start].count(b"\r")
        raise CorpusError(
            f"{path}:{line} is not UTF-8 text (byte 0x{chunk[error.start]:02x}): {_remedy(path)}"
        ) from None
    if "\0" in text and not nul:
        raise CorpusError(f"{path}:{number} is not UTF-8 text (a NUL byte): {_remedy(path)}")
    return text


def _remedy(path: Path) -> str:
    """Return what to do with a file that is not UTF-8: how to convert it, if it looks like a text."""
    with path.open("rb") as stream:
        encoding = guess_encoding(stream.read(GUESSED_BYTES))
    if encoding is None:
        return "remove it from the corpus, or convert it if it is text"
    return f"it looks like {encoding.upper()}; convert it: iconv -f {encoding.upper()} -t UTF-8"


# Plain text: a list of facts, one per line; notes, whose neighbouring lines belong together; or a document with a
# layout of blank lines and indentation (layout.py).

SENTENCE_END = re.compile(r"[.!?:;。！？…।॥؟۔][\"'”’»)\]]*$")
# Thai and Lao have no full stop.
FACT_END = re.compile(r"(?:[.!?。！？…।॥؟۔\u104b\u17d4][\"'”’»)\]]*|[\u0e00-\u0eff])$")
SAMPLE_LINES = 400  # by which the kind of a text is told
MAX_STATEMENT_LINES = 12
MAX_TABLE_LINES = 500
MAX_ODD_SHARE = 0.1  # of lines that are not as the others


def read_plain(document: Document) -> Iterator[Block]:
    """Yield each line if the first ones look like a list of facts, and else paragraphs or the blocks of the layout."""
    numbered = lines(document.path)
    head = list(islice(numbered, SAMPLE_LINES))
    sample = [line for _, line in head]
    if is_laid_out(sample):
        yield from layout.blocks(chain(head, numbered))
    else:
        read_lines = notes_of
        if is_list_of_facts(sample):
            read_lines = statements_of
        for is_row, rows in groupby(with_rows(chain(head, numbered)), key=lambda line: line.is_row):
            if is_row:
                for row in rows:
                    yield Block("item", row.text, row.number)
            else:
                yield from read_lines((line.number, line.text) for line in rows)


@dataclass(frozen=True)
class TextLine:
    """A line of a text, or the row of a table in it."""

    number: int
    text: str
    is_row: bool = False


def with_rows(numbered: Iterable[tuple[int, str]]) -> Iterator[TextLine]:
    """Yield the lines of a text and, in place of those of a table, its rows."""
    paragraph: list[TextLine] = []
    for number, text in numbered:
        paragraph.append(TextLine(number, text))
        if not text.strip() or len(paragraph) == MAX_TABLE_LINES:
            yield from _rows_of(paragraph)
            paragraph = []
    yield from _rows_of(paragraph)


def _rows_of(paragraph: Sequence[TextLine]) -> Iterator[TextLine]:
    at = 0
    for table in find_tables([line.text for line in paragraph]):
        yield from paragraph[at : table.start]
        for row, text in table.rows:
            yield TextLine(paragraph[row].number, text, is_row=True)
        at = table.end
    yield from paragraph[at:]


def is_list_of_facts(sample: Sequence[str]) -> bool:
    """Return whether nearly every line is a sentence, and blank lines do not join them to paragraphs."""
    paragraphs = several = 0  # of several lines
    lines = unended = 0
    for is_filled, group in groupby(sample, key=lambda line: bool(line.strip())):
        if not is_filled:
            continue
        paragraph = list(group)
        paragraphs += 1
        several += len(paragraph) > 1
        for line in paragraph:
            if any(map(str.isalpha, line)):  # others say nothing alone in either
                lines += 1
                unended += not FACT_END.search(line.rstrip())
    is_grouped = paragraphs > 1 and several > paragraphs / 2
    return unended <= MAX_ODD_SHARE * lines and not is_grouped


def notes_of(numbered: Iterable[tuple[int, str]]) -> Iterator[Block]:
    """Yield the lines of notes; those of a paragraph stay together: "Severity 1", "responds within 15 minutes"."""
    level = 0
    for number, line in numbered:
        text = line.strip()
        if text:
            yield Block("text", text, number, level=level)
            level = CONTINUED_LEVEL
        else:
            level = 0


def statements_of(numbered: Iterable[tuple[int, str]]) -> Iterator[Block]:
    """Yield each line as a statement. A line without letters says nothing alone, so it goes on with the line before it,
    and so does a line after one that ends in a colon: "Workshop:", "555 0102"."""
    text, first, begun = "", 0, list[tuple[int, int]]()
    # Of the statement so far: whether it is in this paragraph, and the number of its lines.
    is_near, count = False, 0
    for number, raw in numbered:
        line = raw.strip()
        if not line:
            is_near = False
            continue
        is_introduced = text.endswith(":")
        is_bare = not any(map(str.isalpha, line)) and not all(map(is_mark, line))
        is_open = not SENTENCE_END.search(text) and (is_near or count == 1)
        continues = (is_introduced and (is_near or is_bare)) or (is_bare and is_open)
        if text and continues and count < MAX_STATEMENT_LINES:
            begun.append((len(text.split()), number))
            text += f" {line}"
            count += 1
        else:
            if text:
                yield Block("statement", text, first, lines=tuple(begun))
            text, first, begun, count = line, number, [], 1
        is_near = True
    if text:
        yield Block("statement", text, first, lines=tuple(begun))


def is_laid_out(sample: Sequence[str]) -> bool:
    """Return whether lines are wrapped, indented or underlined, so that a single line says little."""
    filled = [line for line in sample if line.strip()]
    if any(map(layout.UNDERLINE.fullmatch, filled[1:])):
        return True
    indented = wrapped = 0
    for line, following in pairwise([*sample, ""]):
        if line.strip():
            indented += line[0] in " \t"
            wrapped += not SENTENCE_END.search(line.rstrip()) and following[:1].islower()
    return wrapped > MAX_ODD_SHARE * len(filled) / 4 or indented > MAX_ODD_SHARE * len(filled)
