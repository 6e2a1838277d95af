"""A card of both: its model writes, and so does the index of the same corpus. The selectors choose."""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.answer import Passage
from kcard.cards.kinds.table import CardGenerator
from kcard.sampling import Sampling

__all__ = ["Both"]


@dataclass(frozen=True)
class Both:
    """Two writers of one card."""

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
