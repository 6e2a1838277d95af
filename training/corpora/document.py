"""What a reader is given, and what it leaves behind besides text."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from kcard.answer import Source

__all__ = ["Document", "Losses"]


@dataclass
class Losses:
    """What was not taken, while a corpus is read: nothing is lost without being counted here.

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

    `name` is how passages name it; `column` is the user's choice: a column, or a sentence with {columns} in it.
    """

    path: Path
    name: str
    column: str | None = None
    losses: Losses = field(default_factory=Losses)

    def source(self, text: str, line: int) -> Source:
        return Source(text, self.name, line)
