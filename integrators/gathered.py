"""What an integrator hands on: every passage with its marks, and notes for the user."""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.answer import Passage
from kcard.request import Turn

__all__ = ["Gathered", "distinct"]


@dataclass(frozen=True)
class Gathered:
    """Passages in the order in which the LLM reads the kept ones; `turns`: what led to them, in top-down and hybrid."""

    passages: tuple[Passage, ...] = ()
    notes: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()

    @property
    def knowledge(self) -> tuple[str, ...]:
        """What the LLM reads: only what cards wrote, never the evidence."""
        return tuple(p.knowledge for p in self.passages if p.kept)

    @property
    def headings(self) -> tuple[str, ...]:
        """What stands over each of these, and at its beginning; empty texts where nothing does."""
        return tuple(p.source.section if p.source else "" for p in self.passages if p.kept)


def distinct(passages: Sequence[Passage]) -> list[Passage]:
    """Non-empty passages in their order, of equal texts the first, or the one that was looked up."""
    first: dict[str, Passage] = {}
    for passage in passages:
        if passage.text.strip():
            known = first.setdefault(passage.text, passage)
            if known.source is None and passage.source is not None:
                first[passage.text] = passage
    return list(first.values())
