"""Every card that may be asked, loaded when it is first needed and kept: the Writer of kcard.protocols.

It knows names and passages; what kinds of cards there are, and models, it does not know.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from kcard.answer import Passage
from kcard.cards.base import Shelf
from kcard.cards.folder import Card
from kcard.cards.generation import ROWS
from kcard.cards.kinds import CardWriter, load
from kcard.errors import UnknownCard, UsageError
from kcard.protocols import LLM
from kcard.request import Choice
from kcard.sampling import Sampling

__all__ = ["Pool"]


class Pool:
    """Cards that write passages. `rows`: most documents written at once; less where memory is short.

    `llm`: what finds the LLM that a card names (kcard.cards.llm_card).
    """

    def __init__(
        self,
        cards: Sequence[Card | Path],
        device: str = "cpu",
        rows: int = ROWS,
        llm: Callable[[str], LLM] | None = None,
    ) -> None:
        opened = [card if isinstance(card, Card) else Card.open(card) for card in cards]
        self._cards = {card.name: card for card in opened}
        if len(self._cards) < len(opened):
            names = [card.name for card in opened]
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"two cards are named {twice!r}: a pool holds one version of each card")
        self._shelf = Shelf(device=device, rows=rows, llm=llm)
        self._loaded: dict[str, CardWriter] = {}

    @property
    def cards(self) -> Sequence[Choice]:
        """Name, description and knowledge date of each card, in the order given."""
        manifests = [card.manifest for card in self._cards.values()]
        return [Choice(m.name, m.description, m.knowledge_date) for m in manifests]

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        """See Writer. A document may be empty where a card has nothing to say. Raises UnknownCard."""
        writers = [self._writer(name) for name in cards]
        written: list[list[Passage]] = [[] for _ in questions]
        for writer in writers:
            for passages, new in zip(written, writer.write(questions, documents, sampling), strict=True):
                passages += new
        return written

    def _writer(self, name: str) -> CardWriter:
        if name not in self._cards:
            known = ", ".join(self._cards) or "none"
            raise UnknownCard(f"no card {name!r} in this pool; it holds {known}")
        if name not in self._loaded:
            self._loaded[name] = load(self._cards[name], self._shelf)
        return self._loaded[name]
