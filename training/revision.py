"""What a card learned and what it is to know now: the texts that have come, those that have gone, and the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Revision"]


@dataclass(frozen=True)
class Revision:
    """`now`: the statements of the corpus; `before`: those that the card was trained on, both in order."""

    now: Sequence[str]
    before: Sequence[str]

    @cached_property
    def kept(self) -> list[tuple[int, int]]:
        """Those of both, as (row now, row before)."""
        rows = {text: row for row, text in enumerate(self.before)}
        return [(row, rows[text]) for row, text in enumerate(self.now) if text in rows]

    @cached_property
    def added(self) -> list[int]:
        """Rows of `now` that the card does not know."""
        had = set(self.before)
        return [row for row, text in enumerate(self.now) if text not in had]

    @cached_property
    def removed(self) -> list[str]:
        has = set(self.now)
        return [*dict.fromkeys(text for text in self.before if text not in has)]
