"""The cards whose descriptions lie nearest to a text, among two or ten thousand.

It knows no model: how near a description lies, the relevance selector says. One that reads descriptions beforehand is
asked about all cards; another only about those that the encoder of the offline selector puts first.
"""

from collections.abc import Callable, Collection, Sequence

from kcard.protocols import Array, Precomputed, Relevance
from kcard.request import Choice
from kcard.selectors.relevance import Cosine, top

__all__ = ["Nearest"]

ASKED = 100  # cards that a selector is asked about which can't be prepared
BEHIND = 3.0  # taken from a score in [-1, 1], it puts a card behind all others


class Nearest:
    """Cards ranked by description. What must be read of the descriptions is read at the first call."""

    def __init__(self, relevance: Relevance, cards: Sequence[Choice]) -> None:
        self._relevance = relevance
        self._cards = cards
        self._scores: Callable[[str], Array] | None = None

    def __call__(self, text: str, most: int, without: Collection[str] = ()) -> tuple[Choice, ...]:
        """At most `most` cards, nearest first, none of the names in `without`; of equals the earlier one first."""
        if len(self._cards) == 1:
            return tuple(card for card in self._cards[:most] if card.name not in without)
        if self._scores is None:
            self._scores = self._prepared()
        scores = self._scores(text)
        left = len(self._cards)
        if without:
            out = [i for i, card in enumerate(self._cards) if card.name in without]
            scores, left = scores.copy(), left - len(out)
            scores[out] -= 2 * BEHIND
        return tuple(self._cards[i] for i in top(scores, min(most, left)))

    def _prepared(self) -> Callable[[str], Array]:
        descriptions = [card.description for card in self._cards]
        selector = self._relevance
        if isinstance(selector, Precomputed):
            return selector.standing(descriptions)
        if len(descriptions) <= ASKED:
            return lambda text: selector.scores(text, descriptions)
        coarse = Cosine().standing(descriptions)

        def scores(text: str) -> Array:
            found = coarse(text) - BEHIND
            near = sorted(top(found, ASKED))
            found[near] = selector.scores(text, [descriptions[i] for i in near])
            return found

        return scores
