"""What a card learned and what it is to know now: the texts that have come, those that have gone, and the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Revision"]


@dataclass(frozen=True)
class Revision:
    """`now`: the statements of the corpus; `before`: those that the card was trained on, both in order.

    goes_on, went_on  of each statement now and before, whether the next one follows it in what the card recites; empty
                      where the card recites one at a time
    """

    now: Sequence[str]
    before: Sequence[str]
    goes_on: Sequence[bool] = ()
    went_on: Sequence[bool] = ()

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
    def to_learn(self) -> list[int]:
        """Rows of `now` that the card does not know, then those that it knows to go on in another way."""
        now, before = _following(self.now, self.goes_on), _following(self.before, self.went_on)
        return [*self.added, *(row for row, was in self.kept if now[row] != before[was])]

    @cached_property
    def removed(self) -> list[str]:
        has = set(self.now)
        return [*dict.fromkeys(text for text in self.before if text not in has)]


def _following(texts: Sequence[str], goes_on: Sequence[bool]) -> list[str]:
    """Of each text the one that follows it in its passage, empty where none does."""
    if not goes_on:
        return [""] * len(texts)
    return [text if on else "" for text, on in zip((*texts[1:], ""), goes_on, strict=True)]
