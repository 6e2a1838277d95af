"""A card as what embeds questions, for gates: the entry point `card` of `kcard.representations`."""

import hashlib
from collections.abc import Sequence

from kcard.cards.format.folder import Card
from kcard.cards.lm.fallback.card import CausalCard
from kcard.cards.lm.loader import Loader
from kcard.errors import UsageError
from kcard.hidden_states import layer_and_pooling
from kcard.manifest import MANIFEST, file_digest
from kcard.protocols import Array

__all__ = ["CardStates"]

MODELS = ("full", "lora", "prefix")


class CardStates:
    """card:FOLDER, prompted as it is to write. `layer` and `pooling` (last, unless mean) as for hf:MODEL.

    Raises CardError where the folder is no card, UsageError for a card without a model, a layer or a pooling that
    there is not.
    """

    def __init__(self, where: str, layer: str = "-1", pooling: str = "auto") -> None:
        card = Card.open(where)
        if card.manifest.kind not in MODELS:
            raise UsageError(
                f"encoder card:{where}: a card of kind {card.manifest.kind} has no hidden states; name one of kind "
                f"{' or '.join(MODELS)}"
            )
        self._card = CausalCard(card, Loader())
        self._layer, given = layer_and_pooling(layer, pooling, self._card.layers)
        self._mean = given == "mean"
        told = f"layer={self._layer},pooling={'mean' if self._mean else 'last'}"
        self.name = f"card:{card.folder.resolve()},{told}"
        what = (file_digest(card.folder / MANIFEST), self._layer % (self._card.layers + 1), self._mean)
        self.digest = hashlib.sha256(repr(what).encode()).hexdigest()

    def vectors(self, questions: Sequence[str]) -> Array:
        return self._card.hidden_states(questions, self._layer, self._mean)
