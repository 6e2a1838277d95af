"""Tables in text files: .csv with commas, semicolons or tabs, and .tsv that is not a list of triples."""

import csv
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from kcard.errors import CorpusError
from kcard.training.corpora.columns import NAMES, Row, texts
from kcard.training.corpora.document import Block, Document
from kcard.training.corpora.lines import LONGEST, lines

__all__ = ["NAMES", "cells", "count_broken", "read"]

DELIMITERS = ",;\t|"
NONE = "\x1f"  # no text holds it: a table of one column


def read(document: Document) -> Iterator[Block]:
    head = [line for _, line in islice(lines(document.path, whole=True), 1)]
    if head:
        yield from texts(_rows(document, _delimiter(head[0])), document)


def _delimiter(head: str) -> str:
    """The one that cuts the header into most columns."""
    best = max(DELIMITERS, key=lambda mark: len(next(csv.reader([head], delimiter=mark), [])))
    return best if best in head else NONE


def _rows(document: Document, delimiter: str) -> Iterator[tuple[int, Row]]:
    found = cells(document.path, delimiter)
    _, header = next(found, (0, []))
    if not header:
        raise CorpusError(f"{document.path} has no header: its first row must name the columns")
    columns = [name.strip() or f"column {at}" for at, name in enumerate(header, 1)]
    if _is_text(columns):
        found = chain([(1, header)], found)
        columns = ["text"]
    for number, row in found:
        if len(row) == len(columns):
            yield number, dict(zip(columns, row, strict=True))
        else:
            found_columns = f"{len(row)} columns instead of {len(columns)}"
            count_broken(document, f"row {number} has {found_columns if row else 'a stray quotation mark'}")


def count_broken(document: Document, why: str) -> None:
    if not document.losses.dropped["broken rows"]:
        document.losses.notes.append(f"{document.name}: {why}; such rows are skipped")
    document.losses.dropped["broken rows"] += 1


def _is_text(columns: Sequence[str]) -> bool:
    """Whether the first row is text, not a header: its only cell is a sentence."""
    return len(columns) == 1 and columns[0].lower() not in NAMES and columns[0].count(" ") >= 2


def cells(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(number, cells) of every row; the header is row 0, empty lines are none, a row with a stray quote has no
    cells. Quoted cells may hold line ends.

    Raises CorpusError, naming the line, for a quote that is never closed.
    """
    csv.field_size_limit(LONGEST)
    text = (f"{line}\n" for _, line in lines(path, whole=True))
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    number = 0
    while True:
        begins = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            if "expected after" not in str(error):
                raise CorpusError(f"{path}:{begins} opens a quote that is never closed: close it") from None
            yield number, []
            number += 1
            continue
        if row is None:
            return
        if row:
            yield number, row
            number += 1
