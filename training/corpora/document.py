"""What a reader is given, and what it gives back: the blocks of a document, and what it left out."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kcard.errors import CorpusError

__all__ = ["Block", "Document", "Kind", "Losses", "reading"]

Kind = Literal["heading", "term", "text", "item", "code", "statement"]


@dataclass(frozen=True)
class Block:
    """One piece of a document, in the order of the document.

    kind     heading: the title of what follows; `level` 1 is the highest. term: what the blocks after it define, up to
             the next term of its level; without text it ends a list of definitions. text: a paragraph. item: an entry
             of a list, a row of a table. code: lines that keep their breaks. statement: a text that stands alone, such
             as a line of a list of facts
    line     where it begins, counted from 1: a line, a row, a page or a paragraph, depending on the format
    file     where the text comes from, if that is not the document itself (a card's passages that are read again)
    section  its headings, likewise
    lines    where the text goes on in other lines of the document: (words of the text before that, number of the line)
    """

    kind: Kind
    text: str
    line: int
    level: int = 0
    file: str | None = None
    section: str | None = None
    lines: tuple[tuple[int, int], ...] = ()


@dataclass
class Losses:
    """What was not taken while a corpus was read: nothing is lost without being counted here.

    `dropped` counts lines, rows or words by reason; `notes` are sentences for the user.
    """

    dropped: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def add(self, other: "Losses") -> None:
        self.dropped.update(other.dropped)
        self.notes += other.notes


@dataclass(frozen=True)
class Document:
    """One file of a corpus, or one data set.

    `name` is how passages refer to it; `column` is the user's choice: a column, or a sentence with {columns} in it.
    """

    path: Path
    name: str
    column: str | None = None
    losses: Losses = field(default_factory=Losses)

    def content(self) -> bytes:
        with reading(self.path):
            return self.path.read_bytes()

    def statement(self, text: str, line: int) -> Block:
        return Block("statement", text, line)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Make a CorpusError of a file that can't be opened."""
    try:
        yield
    except OSError as error:
        raise CorpusError(f"{path} can't be read ({error.strerror}): check its permissions") from error
