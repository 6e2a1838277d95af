"""One of the cards of a pool, as if there were no others."""

from collections.abc import Sequence

from kcard.answer import Passage
from kcard.errors import UnknownCard
from kcard.integrators import grouped
from kcard.protocols import Generator
from kcard.request import Choice
from kcard.sampling import Sampling

__all__ = ["Narrowed"]


class Narrowed:
    """The card `name` of `writer`. Raises UnknownCard where there is no such card."""

    def __init__(self, writer: Generator, name: str) -> None:
        self._writer = writer
        self._cards = tuple(card for card in writer.cards if card.name == name)
        if not self._cards:
            raise UnknownCard(f"no card {name!r} in this pool")

    @property
    def cards(self) -> Sequence[Choice]:
        return self._cards

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        return self._writer.write(questions, cards, documents, sampling)

    def write_each(
        self,
        questions: Sequence[str],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """See Scheduling."""
        return grouped.write(self._writer, questions, cards, documents, sampling)
