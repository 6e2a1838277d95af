"""The cards that fit a text best, among two or ten thousand."""

import math
from collections.abc import Callable, Collection, Sequence

import numpy as np

from kcard.integrators.card_index import CardIndex
from kcard.integrators.profiles import Profiles, described
from kcard.protocols import Relevance
from kcard.request import Choice

__all__ = ["Nearest"]

# What a question's best card must score at least for a half to be right, and how fast that grows.
HALF, STEEP = 0.715, 13.5


class Nearest:
    """Cards ranked by description and profile. What must be read of them is read at the first call.

    `profiles`: those of the cards, in order; None: descriptions are all that is known of them.
    """

    def __init__(
        self,
        relevance: Relevance,
        cards: Sequence[Choice],
        profiles: Callable[[Sequence[Choice]], Profiles] | None = None,
    ) -> None:
        self._relevance = relevance
        self._cards = cards
        self._profiles = profiles or described
        self._index: CardIndex | None = None

    def __call__(
        self, text: str, most: int, without: Collection[str] = (), margin: float = math.inf
    ) -> tuple[Choice, ...]:
        """At most `most` cards, best first, none of the names in `without`; of equals the earlier one first. `margin`:
        after the best one only cards whose score is less than this below its score."""
        if len(self._cards) == 1:
            return tuple(card for card in self._cards[:most] if card.name not in without)
        cards, scores = self._opened()(text, most + len(without))
        ranked = zip((self._cards[i] for i in cards.tolist()), scores.tolist(), strict=True)
        found = [(card, score) for card, score in ranked if card.name not in without][:most]
        return tuple(card for i, (card, score) in enumerate(found) if not i or score > found[0][1] - margin)

    def best(self, text: str) -> tuple[Choice, float]:
        """The card that fits best, and the probability in [0, 1] that it answers a question if any card does so."""
        cards, scores = self._opened()(text, 1)
        return self._cards[cards[0]], float(1 / (1 + np.exp(STEEP * (HALF - scores[0]))))

    def _opened(self) -> CardIndex:
        if self._index is None:
            descriptions = [card.description for card in self._cards]
            self._index = CardIndex(self._relevance, descriptions, self._profiles(self._cards))
        return self._index
