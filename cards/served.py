"""The cards of a pool that servers write for: the questions of all of them are sent together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.answer import Passage
from kcard.cards.kinds.generator import Both
from kcard.cards.lm.loader import Loader
from kcard.cards.turns import Turns
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.cards.kinds.generator import CardGenerator
    from kcard.cards.lm.vllm.card import ServedCard
    from kcard.cards.lm.vllm.engines import Engines

__all__ = ["Served"]


@dataclass(frozen=True)
class Served:
    """`cards`: of the pool, as they are loaded."""

    cards: Turns
    models: Loader

    def names(self, names: Collection[str]) -> list[str]:
        """Those of the cards that servers write for."""
        engines = self.models.engines
        if engines is None:
            return []
        served = []
        for name in names:
            with self.cards.tolerating(name):
                if self._has(engines, name):
                    served.append(name)
        return served

    def write(
        self, questions: Mapping[str, Sequence[str]], documents: int, sampling: Sampling
    ) -> Iterator[tuple[str, list[list[Passage]]]]:
        """Each card with the passages for its questions; those of its index, where it has one, come last."""
        found: dict[str, ServedCard | None] = {}
        for name in questions:
            with self.cards.tolerating(name):
                found[name] = _served(self.cards.writer(name))
        members = [(card, questions[name]) for name, card in found.items() if card is not None]
        if not members:
            return
        written = members[0][0].group.write_each(members, documents, sampling)
        for name, rows in zip(found, written, strict=True):
            writer = self.cards.writer(name)
            if isinstance(writer, Both):
                looked_up = writer.index.write(questions[name], documents, sampling)
                rows = [[*own, *passages] for own, passages in zip(rows, looked_up, strict=True)]
            yield name, rows

    def _has(self, engines: "Engines", name: str) -> bool:
        """Asked before the card is loaded, which would read its model where no server has it."""
        from kcard.cards.lm.vllm.engines import MODELS

        card = self.cards.cards[name]
        if card.manifest.kind == "reference":  # is one of the others once it was fetched
            return _served(self.cards.writer(name)) is not None
        return card.manifest.kind in MODELS and engines.card(card, self.models) is not None


def _served(writer: "CardGenerator") -> "ServedCard | None":
    from kcard.cards.lm.vllm.card import ServedCard

    model = writer.model if isinstance(writer, Both) else writer
    return model if isinstance(model, ServedCard) else None
