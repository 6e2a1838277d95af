"""Where the weights of a card are: tiers of memory, and what leaves them."""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence

__all__ = ["AGE", "Frequency", "Recency", "Tiers"]


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
