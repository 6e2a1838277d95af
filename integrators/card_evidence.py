"""The corpus of each card, as evidence: opened when a passage of the card is there, not before."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kcard.protocols import Evidence

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card, CardSet

__all__ = ["CardEvidence"]


class CardEvidence(Mapping[str, Evidence]):
    """What travels with each card, or what it searches, by the card's name; a card without a corpus is missing.

    Going through it gives what is open so far: all that can have something to say (`notes`). What would be searched
    elsewhere is opened at once, so that the user knows before a question is sent.
    """

    def __init__(self, cards: "CardSet") -> None:
        self._cards = cards
        self._open: dict[str, Evidence | None] = {}
        for manifest in cards.manifests:
            if manifest.kind == "search":
                self.get(manifest.name)

    def __getitem__(self, name: str) -> Evidence:
        if name not in self._open:
            self._open[name] = own_evidence(self._cards[name])
        if (found := self._open[name]) is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, found in self._open.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def own_evidence(card: "Card") -> Evidence | None:
    """What travels with the card (its passages and their index, or their hashes) or what it searches; else None."""
    from kcard.cards.format.passages import hashes, index, passages
    from kcard.selectors.evidence.sources import CorpusEvidence, Hashes, Statements

    if card.manifest.kind == "search":
        from kcard.cards.kinds.search import Search

        return Search.read(card.folder).open()
    if sources := passages(card.folder):
        corpus = CorpusEvidence(sources, card.name, index(card))
        return Statements(corpus) if card.manifest.kind == "graph" else corpus
    places = hashes(card.folder)
    return Hashes(places) if places else None
