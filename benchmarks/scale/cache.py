"""Where the weights of a card are: memory tiers with LRU replacement, and what theory says about their hits."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tiers", "che", "recent"]


class Tiers:
    """LRU over tiers of memory, fastest first. A card that falls out of one tier goes on to the next.

    capacities  of each tier, in cards. What is in none of them is in tier len(capacities), which holds every card
    """

    def __init__(self, capacities: Sequence[int]) -> None:
        self._capacities = tuple(capacities)
        self._tiers: list[OrderedDict[int, None]] = [OrderedDict() for _ in capacities]

    def get(self, card: int) -> int:
        """The tier in which the card was; now it is the last used of the first."""
        for number, tier in enumerate(self._tiers):
            if card in tier:
                del tier[card]
                self._put(card, number)
                return number
        self._put(card, len(self._tiers))
        return len(self._tiers)

    def fill(self, cards: Iterable[int]) -> None:
        """Start with these, the last used one first."""
        rest = iter(cards)
        for tier, capacity in zip(self._tiers, self._capacities, strict=True):
            held = [card for card, _ in zip(rest, range(capacity), strict=False)]
            tier.update(dict.fromkeys(reversed(held)))

    def _put(self, card: int, emptied: int) -> None:
        """In the first tier; what has no room is passed down, at most to the tier that the card left."""
        for number in range(min(emptied + 1, len(self._tiers))):
            tier = self._tiers[number]
            tier[card] = None
            if len(tier) <= self._capacities[number]:
                return
            card, _ = tier.popitem(last=False)


def recent(rates: NDArray[np.float64], capacity: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A state of an LRU cache in equilibrium: the positions in `rates` of what it holds, the last used first.

    Under independent reference with Poisson arrivals the time since an item's last use is exponential with its rate,
    and LRU holds the `capacity` items that were used last.
    """
    ages = rng.exponential(size=len(rates)) / rates
    held = np.argpartition(ages, capacity)[:capacity] if capacity < len(rates) else np.arange(len(rates))
    return np.asarray(held[np.argsort(ages[held])], dtype=np.int64)


def che(rates: NDArray[np.float64], capacity: int) -> NDArray[np.float64]:
    """The hit ratio of each item in an LRU cache of `capacity` items.

    Che, Tung, Wang: Hierarchical Web Caching Systems, IEEE JSAC 20 (2002): 1 - exp(-rate T), where T is such that
    these sum up to the capacity.
    """
    if capacity >= len(rates):
        return np.ones(len(rates))
    # Newton's method: the sum is concave in T, so that from 0 on it never overshoots.
    time, step = 0.0, np.inf
    while step > 1e-9 * time:
        missed = np.exp(-rates * time)
        step = (capacity - (1 - missed).sum()) / (rates * missed).sum()
        time += step
    return np.asarray(1 - np.exp(-rates * time))
