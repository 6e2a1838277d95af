"""Which column of a table holds the text: the one that the user names, else the one that its name or content shows."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from kcard.errors import CorpusError
from kcard.training.corpora.document import Block, Document

__all__ = ["NAMES", "Row", "Template", "heading", "texts"]

Row = Mapping[str, Any]

NAMES = (
    "text", "passage", "content", "fact", "sentence", "statement", "body", "abstract", "paragraph", "document",
)  # fmt: skip
HEADINGS = ("section", "title")
LOOKED_AT = 200
SENTENCE = 5  # words that the texts of a column have on average, for it to be taken unasked


class Template:
    """A column by its name, or a sentence with {columns} in it, such as "The capital of {country} is {city}."."""

    def __init__(self, given: str) -> None:
        found = re.findall(r"\{([^{}]+)\}", given)
        self.columns: tuple[str, ...] = tuple(dict.fromkeys(found)) or (given,)
        self._sentence = given if found else f"{{{given}}}"

    def fill(self, row: Row) -> str | None:
        """The row's text, or None where a column of it is empty."""
        cells = {column: _cell(row.get(column)) for column in self.columns}
        if not all(cells.values()):
            return None
        return re.sub(r"\{([^{}]+)\}", lambda match: cells[match[1]], self._sentence)


def texts(rows: Iterable[tuple[int, Row]], document: Document) -> Iterator[Block]:
    """The text of every row, by its number. Rows that have none are counted. Raises CorpusError, which lists the
    columns, where none is named and none stands out."""
    rows = iter(rows)
    first = list(islice(rows, LOOKED_AT))
    if not first:
        return
    columns = [*first[0][1]]
    if document.column is not None:
        template = Template(document.column)
        for column in template.columns:
            if column not in columns:
                raise CorpusError(f"{document.name} has no column {column!r}: it has {', '.join(columns)}")
    else:
        template = Template(_text_column(columns, [row for _, row in first], document))
    for number, row in chain(first, rows):
        text = template.fill(row)
        if text is None:
            document.losses.dropped["rows without text"] += 1
        else:
            section = heading(row) if document.column is None else None
            yield from (Block("statement", part, number, section=section) for part in text.splitlines())


def heading(row: Row) -> str | None:
    """What a row's text is about, by its column "section" or "title"."""
    found = next((row[name] for name in HEADINGS if isinstance(row.get(name), str)), "")
    return " ".join(found.split()) or None


def _text_column(columns: Sequence[str], rows: Sequence[Row], document: Document) -> str:
    by_name = {column.strip().lower(): column for column in reversed(columns)}
    for name in NAMES:
        if name in by_name:
            return by_name[name]
    words = {column: mean for column in columns if (mean := _words(row.get(column) for row in rows))}
    if words:
        best = max(words, key=words.__getitem__)
        if len(words) == 1 or words[best] >= SENTENCE:
            if len(columns) > 1:
                document.losses.notes.append(f"{document.name}: the text is taken from its column {best!r}")
            return best
    several = len(columns) > 1
    sentence = (
        f", or a sentence of them, such as --field '{{{columns[0]}}} ... {{{columns[-1]}}}.'"
        if several
        else ""
    )
    raise CorpusError(
        f"{document.name} has no text column; it has {', '.join(columns)}: name one with --field{sentence}"
    )


def _words(cells: Iterable[Any]) -> float:
    """Mean words of the cells; 0 where one is not text, or where all are numbers or empty."""
    found = [cell for cell in cells if cell not in (None, "")]
    if not found or not all(isinstance(cell, str) for cell in found):
        return 0.0
    if not any(character.isalpha() for cell in found for character in cell):
        return 0.0
    # Scripts without blanks: five characters count as a word.
    words: float = sum(max(cell.count(" ") + 1, 0 if cell.isascii() else len(cell) / 5) for cell in found)
    return words / len(found)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "\n".join(_cell(part) for part in value)
    return str(value).strip()
