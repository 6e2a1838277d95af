"""A loaded card: what turns questions into passages, whatever kind of card it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from kcard.answer import Passage, Source
from kcard.cards.format.folder import Card
from kcard.cards.format.kinds import kind_of
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.cards.lm.loader import Loader

__all__ = ["Both", "CardGenerator", "load", "padded"]


class CardGenerator(Protocol):
    """One loaded card. One that writes in a batch with others has their `group`, too (kcard.cards.lm.stacked)."""

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """`documents` passages for each question, each by (seed, question, card, document number) alone."""
        ...


def padded(card: str, found: Sequence[Source], documents: int) -> list[Passage]:
    """What a card looked up, best first, as so many passages: the last ones are empty where less was found."""
    passages = [Passage(card, source.text, source=source) for source in found[:documents]]
    return passages + [Passage(card, "")] * (documents - len(passages))


@dataclass(frozen=True)
class Both:
    """A card of both: its model writes, and so does the index of the same corpus. The selectors choose."""

    model: CardGenerator
    index: CardGenerator

    @property
    def size(self) -> int:
        """Bytes of the model's weights that are its own."""
        return int(getattr(self.model, "size", 0))

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """`documents` passages of the model and after them as many of the index, which have a `source`."""
        recited = self.model.write(questions, documents, sampling)
        found = self.index.write(questions, documents, sampling)
        return [[*own, *looked_up] for own, looked_up in zip(recited, found, strict=True)]


def load(card: Card, models: "Loader") -> CardGenerator:
    """Load the card by its kind's loader; a card of both gets its index as a second writer."""
    module, function = kind_of(card.manifest).loader.split(":")
    loader: Any = getattr(import_module(module), function)
    writer: CardGenerator = loader(card, models)
    if not card.manifest.index:
        return writer
    from kcard.cards.kinds import retrieval

    return Both(writer, retrieval.load(card, models))
