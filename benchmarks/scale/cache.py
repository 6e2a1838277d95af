"""Where the weights of a card are: tiers of memory, what leaves them, and what theory says about their hits."""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Frequency", "Recency", "Tiers", "che", "filled", "recent"]


# Uses of a model after which kcard.cards.lm.memory lets all uses count half; it counts three things for each.
AGE = 333


class Recency:
    """At most `capacity` cards; the one used longest ago leaves first (LRU)."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._cards: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, card: int) -> bool:
        return card in self._cards

    def remove(self, card: int) -> None:
        del self._cards[card]

    def fill(self, cards: Sequence[int]) -> None:
        """Start with these, the last used one first."""
        self._cards.update(dict.fromkeys(reversed(cards)))

    def add(self, card: int) -> int | None:
        """A card that is not there, as the last used; the one that leaves for it."""
        self._cards[card] = None
        return self._cards.popitem(last=False)[0] if len(self._cards) > self._capacity else None


class Frequency:
    """At most `capacity` cards; the one used least often leaves first, of those used equally often the one used longest
    ago, as from kcard.cards.lm.memory. Uses are remembered when a card has left. `uses`: at the start."""

    def __init__(self, capacity: int, uses: Mapping[int, int]) -> None:
        self._capacity = capacity
        self._uses, self._total = Counter(uses), sum(uses.values())
        self._last: dict[int, int] = {}  # of each card that is there, when it was used last
        self._time = 0
        self._heap: list[
            tuple[int, int, int]
        ] = []  # uses, last use and card; void where the card was used later

    def __contains__(self, card: int) -> bool:
        return card in self._last

    def remove(self, card: int) -> None:
        del self._last[card]

    def fill(self, cards: Sequence[int]) -> None:
        self._last = {card: time for time, card in enumerate(reversed(cards), 1)}
        self._time = len(cards)
        self._sort()

    def add(self, card: int) -> int | None:
        """As Recency does, and count a use."""
        self._uses[card] += 1
        self._total += 1
        if self._total > AGE:
            self._halve()
        leaving = self._least() if len(self._last) == self._capacity else None
        self._time += 1
        self._last[card] = self._time
        heapq.heappush(self._heap, (self._uses[card], self._time, card))
        return leaving

    def _least(self) -> int:
        while True:
            _, time, card = heapq.heappop(self._heap)
            if self._last.get(card) == time:
                del self._last[card]
                return card

    def _halve(self) -> None:
        self._uses = Counter({card: times // 2 for card, times in self._uses.items() if times > 1})
        self._total = self._uses.total()
        self._sort()

    def _sort(self) -> None:
        self._heap = [(self._uses[card], time, card) for card, time in self._last.items()]
        heapq.heapify(self._heap)


class Tiers:
    """Tiers of memory, fastest first. A card that leaves one goes on to the next.

    capacities  of each tier, in cards. What is in none of them is in tier len(capacities), which holds every card
    frequency   whether the cards used least often leave the first tier; all others are LRU
    uses        with frequency: how often cards were used before
    """

    def __init__(
        self, capacities: Sequence[int], frequency: bool = False, uses: Mapping[int, int] | None = None
    ) -> None:
        self._capacities = tuple(capacities)
        first: Recency | Frequency = Recency(capacities[0])
        if frequency:
            first = Frequency(capacities[0], uses or {})
        self._tiers = [first, *map(Recency, capacities[1:])]

    def fill(self, cards: Sequence[int]) -> None:
        """Start with these: as many as fit into the first tier, the others in the next ones."""
        start = 0
        for tier, capacity in zip(self._tiers, self._capacities, strict=True):
            tier.fill(cards[start : start + capacity])
            start += capacity

    def get(self, card: int) -> int:
        """The tier in which the card was; now it is the last used of the first."""
        found = next((number for number, tier in enumerate(self._tiers) if card in tier), len(self._tiers))
        if found < len(self._tiers):
            self._tiers[found].remove(card)
        moving: int | None = card
        for tier in self._tiers[: found + 1]:
            if moving is not None:
                moving = tier.add(moving)
        return found


def recent(rates: NDArray[np.float64], capacity: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A state of an LRU cache in equilibrium: the positions in `rates` of what it holds, the last used first.

    Under independent reference with Poisson arrivals the time since an item's last use is exponential with its rate,
    and LRU holds the `capacity` items that were used last.
    """
    ages = rng.exponential(size=len(rates)) / rates
    held = np.argpartition(ages, capacity)[:capacity] if capacity < len(rates) else np.arange(len(rates))
    return np.asarray(held[np.argsort(ages[held])], dtype=np.int64)


def filled(
    capacities: Sequence[int],
    frequency: bool,
    cards: NDArray[np.int64],
    rates: NDArray[np.float64],
    rng: np.random.Generator,
) -> Tiers:
    """Tiers that have been in use for long; `rates`: how often each card is asked, in any unit."""
    uses = _used(rates, rng)
    there = np.flatnonzero(uses)
    tiers = Tiers(capacities, frequency, dict(zip(cards[there].tolist(), uses[there].tolist(), strict=True)))
    held = recent(rates, sum(capacities), rng)
    if frequency:  # those used most are in memory
        often = held[np.argsort(-uses[held], kind="stable")[: capacities[0]]]
        held = np.concatenate([often, held[~np.isin(held, often)]])
    tiers.fill(cards[held].tolist())
    return tiers


def _used(rates: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """How often each item was used lately, as Tiers counts it: between half of AGE and all of it together."""
    return np.asarray(rng.poisson(rates / rates.sum() * AGE * 0.75), dtype=np.int64)


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
