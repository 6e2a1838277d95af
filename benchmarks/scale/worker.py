"""A simulated worker: what waits, what is in memory, and when it is done with what it does.

It knows neither the clock nor other workers: kcard's own engine, which answers a batch to its end, and engines with
continuous batching, such as vLLM, where a question joins the batch after any token.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol

from benchmarks.scale.batching import Waiting, take
from benchmarks.scale.cache import Tiers

__all__ = ["BatchWorker", "ContinuousWorker", "Costs", "Worker"]


@dataclass(frozen=True)
class Costs:
    """Seconds. `batch`: of writing for so many questions at once; `load`: of a card from the tier of that number, 0
    being where the weights are used."""

    batch: Callable[[int], float]
    load: Callable[[int], float]


class Worker(Protocol):
    """`next`: when something happens in here again, in seconds; `busy`: seconds of work so far, at full speed."""

    next: float
    busy: float

    def add(self, question: int, card: int, now: float) -> None:
        """A question arrives."""
        ...

    def advance(self, now: float) -> list[tuple[int, int]]:
        """What happens at `next`: the questions that are answered now, and the tier that each found its card in."""
        ...

    def slow(self, factor: float, now: float) -> None:
        """From now on everything takes so many times as long."""
        ...


class BatchWorker:
    """Loads a card where needed, then answers the batch; meanwhile questions wait. See `take` for `mixed`."""

    def __init__(self, costs: Costs, tiers: Tiers, most: int, mixed: bool = False) -> None:
        self.next, self.busy = inf, 0.0
        self._costs, self._tiers, self._most, self._mixed = costs, tiers, most, mixed
        self._waiting: Waiting = deque()
        self._batch: list[tuple[int, int]] = []
        self._factor = 1.0

    def add(self, question: int, card: int, now: float) -> None:
        self._waiting.append((question, card))
        if not self._batch:
            self._start(now)

    def advance(self, now: float) -> list[tuple[int, int]]:
        answered, self._batch, self.next = self._batch, [], inf
        if self._waiting:
            self._start(now)
        return answered

    def slow(self, factor: float, now: float) -> None:
        if self._batch:
            self.next = now + (self.next - now) * factor / self._factor
        self._factor = factor

    def _start(self, now: float) -> None:
        batch = take(self._waiting, self._most, self._mixed)
        found = {card: self._tiers.get(card) for card in dict.fromkeys(card for _, card in batch)}
        self._batch = [(question, found[card]) for question, card in batch]
        seconds = self._costs.batch(len(batch)) + sum(self._costs.load(tier) for tier in found.values())
        self.busy += seconds
        self.next = now + seconds * self._factor


class ContinuousWorker:
    """Up to `most` questions at once, which join and leave after any token; cards load one by one beside that.

    With n questions, each proceeds at 1 / batch(n) of its whole work a second. Progress is the same for all, so a
    question is done when the common progress has grown by 1 since it joined.
    """

    def __init__(self, costs: Costs, tiers: Tiers, most: int) -> None:
        self.next, self.busy = inf, 0.0
        self._costs, self._tiers, self._most = costs, tiers, most
        self._loading: deque[tuple[float, int, int]] = deque()  # when the card is there, question, tier
        self._ready: deque[tuple[int, int]] = deque()
        self._active: list[tuple[float, int, int]] = []  # heap: progress when done, question, tier
        self._progress, self._since, self._factor = 0.0, 0.0, 1.0
        self._channel = 0.0  # when the last load is done
        self._there: dict[int, float] = {}  # when cards that load are there

    def add(self, question: int, card: int, now: float) -> None:
        tier = self._tiers.get(card)
        if tier:
            self._channel = max(self._channel, now) + self._costs.load(tier)
            self._there[card] = self._channel
        if self._there.get(card, 0.0) > now:
            self._loading.append((self._there[card], question, tier))
        else:
            self._there.pop(card, None)
            self._ready.append((question, tier))
        self._update(now)

    def advance(self, now: float) -> list[tuple[int, int]]:
        self._move(now)
        answered = []
        while self._active and self._active[0][0] <= self._progress + 1e-9:
            _, question, tier = heapq.heappop(self._active)
            answered.append((question, tier))
        self._update(now)
        return answered

    def slow(self, factor: float, now: float) -> None:
        self._move(now)
        self._factor = factor
        self._update(now)

    def _move(self, now: float) -> None:
        """The progress since the last event."""
        if self._active:
            self.busy += now - self._since
            self._progress += (now - self._since) / (self._costs.batch(len(self._active)) * self._factor)
        self._since = now

    def _update(self, now: float) -> None:
        """Let in what may join, and find out when something happens next."""
        self._move(now)
        while self._loading and self._loading[0][0] <= now:
            _, question, tier = self._loading.popleft()
            self._ready.append((question, tier))
        while self._ready and len(self._active) < self._most:
            question, tier = self._ready.popleft()
            heapq.heappush(self._active, (self._progress + 1, question, tier))
        self.next = self._loading[0][0] if self._loading else inf
        if self._active:
            left = max(0.0, self._active[0][0] - self._progress)
            self.next = min(self.next, now + left * self._costs.batch(len(self._active)) * self._factor)
