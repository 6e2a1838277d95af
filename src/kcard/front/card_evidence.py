"""What the passages of each card are checked against: opened when a passage of the card is there, not before."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kcard.protocols import Evidence

if TYPE_CHECKING:
    from kcard.cards.deck import Deck
    from kcard.cards.folder import Card

__all__ = ["CardEvidence"]


class CardEvidence(Mapping[str, Evidence]):
    """Evidence by the card's name; a card without any is missing.

    shared  what the passages of every card are checked against
    own     whether a card's own source passages are too

    Going through it gives what is open so far, each once: all that can have something to say (`notes`). What would be
    searched elsewhere is opened at once, so that the user is told before a question is sent.
    """

    def __init__(self, cards: "Deck", shared: Sequence[Evidence], own: bool) -> None:
        self._cards, self._shared, self._own = cards, tuple(shared), own
        self._open: dict[str, Evidence | None] = {}
        for manifest in cards.manifests:
            if own and manifest.kind == "search":
                self.get(manifest.name)

    def __getitem__(self, name: str) -> Evidence:
        if name not in self._open:
            self._open[name] = self._evidence(self._cards[name])
        if (found := self._open[name]) is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, found in self._open.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of the evidence that is open."""
        from kcard.selectors.evidence.sources import Union

        return Union([*self._shared, *self.values()]).notes

    def _evidence(self, card: "Card") -> Evidence | None:
        from kcard.selectors.evidence.sources import Union

        own = own_evidence(card) if self._own else None
        corpora: list[Evidence] = [*([own] if own else []), *self._shared]
        if not corpora:
            return None
        return corpora[0] if len(corpora) == 1 else Union(corpora)


def own_evidence(card: "Card") -> Evidence | None:
    """What travels with the card (its passages and their index, or their hashes) or what it searches; else None."""
    from kcard.cards.passages import hashes, index, passages
    from kcard.cards.search import Search
    from kcard.selectors.evidence.sources import Corpus, Hashes, Statements

    if card.manifest.kind == "search":
        return Search.read(card.folder).open()
    if sources := passages(card.folder):
        corpus = Corpus(sources, card.name, index(card))
        return Statements(corpus) if card.manifest.kind == "graph" else corpus
    places = hashes(card.folder)
    return Hashes(places) if places else None
