"""Every card that may be asked, loaded when it is first needed and kept: the Generator of kcard.protocols.

It knows names and passages; what kinds of cards there are, and models, it does not know.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from kcard.answer import Passage
from kcard.cards.format.card_set import CardHandle, CardSet
from kcard.cards.format.folder import Card
from kcard.cards.kinds import together
from kcard.cards.kinds.table import CardGenerator, load
from kcard.cards.lm.generation import ROWS
from kcard.cards.lm.loader import Loader
from kcard.errors import UnknownCard
from kcard.protocols import LLM
from kcard.request import Choice
from kcard.sampling import Sampling

__all__ = ["Pool"]


class Pool:
    """Cards that write passages.

    rows    most documents written at once; less where memory is short
    llm     what finds the LLM that a card names (kcard.cards.kinds.llm)
    memory  bytes that the weights of cards may take; None: half of what the device has. Cards that were asked
            longest ago leave, and are read again when they are asked
    """

    def __init__(
        self,
        cards: Sequence[Card | CardHandle | Path] | CardSet,
        device: str = "cpu",
        rows: int = ROWS,
        llm: Callable[[str], LLM] | None = None,
        memory: int | None = None,
    ) -> None:
        self._cards = cards if isinstance(cards, CardSet) else CardSet(cards)
        self._choices = [Choice(m.name, m.description, m.knowledge_date) for m in self._cards.manifests]
        self._models = Loader(device=device, rows=rows, llm=llm, memory=memory)

    @property
    def cards(self) -> Sequence[Choice]:
        """Name, description and knowledge date of each card, in the order given."""
        return self._choices

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        """See Generator. A document may be empty where a card has nothing to say. Raises UnknownCard."""
        for name in cards:
            if name not in self._cards:
                known = ", ".join(self._cards) or "none"
                raise UnknownCard(f"no card {name!r} in this pool; it holds {known}")
        return together.write(map(self._writer, cards), questions, documents, sampling)

    def _writer(self, name: str) -> CardGenerator:
        return self._models.held.hold(name, lambda: load(self._cards[name], self._models), _size)


def _size(writer: CardGenerator) -> int:
    """Bytes that a card keeps for itself; those of the engine hold nothing."""
    return int(getattr(writer, "size", 0))
