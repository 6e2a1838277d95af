"""Which worker a question goes to, by its card and by how much each worker has to do.

Consistent hashing: Karger and others, STOC 1997; with bounded loads: Mirrokni, Thorup, Zadimoghaddam, SODA 2018.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "POLICIES",
    "Bounded",
    "Hashing",
    "Homes",
    "LeastLoaded",
    "Placement",
    "Random",
    "Replicated",
    "Ring",
    "placement",
]

POINTS = 128
SLACK = 0.25
# Of the questions, which a worker at its bound sends on: .27 to .4 in these simulations. Few go further than DEPTH.
OVERFLOW = 0.3
DEPTH = 4
POLICIES = ("random", "least-loaded", "hashing", "bounded", "replicated")


class Placement(Protocol):
    def choose(self, card: int, load: NDArray[np.int64]) -> int:
        """The worker for a question of that card. `load`: questions that each worker has and hasn't answered."""
        ...

    def homes(self) -> "Homes | None":
        """Where cards are asked in the long run; None where any card may go anywhere."""
        ...


@dataclass(frozen=True)
class Homes:
    """Cards, for each a worker that answers for it, and about which part of the card's questions."""

    cards: NDArray[np.int64]
    workers: NDArray[np.int64]
    parts: NDArray[np.float64]


def placement(
    policy: str, workers: int, shares: NDArray[np.float64], slack: float = SLACK, seed: int = 0
) -> Placement:
    """The policy of that name. `shares`: of the questions, by card."""
    if policy == "random":
        return Random(workers, np.random.default_rng(seed))
    if policy == "least-loaded":
        return LeastLoaded()
    ring = Ring.of(range(workers))
    owners = ring.owners(len(shares))
    if policy == "hashing":
        return Hashing(owners)
    if policy == "bounded":
        return Bounded(ring, owners, slack)
    if policy == "replicated":
        return Replicated.of(ring, owners, shares, slack)
    raise ValueError(f"policy {policy!r} must be one of {', '.join(POLICIES)}")


@dataclass(frozen=True)
class Ring:
    """Workers on a circle of hashes, each at many points; a card belongs to the next point clockwise."""

    points: NDArray[np.uint64]
    workers: NDArray[np.int64]

    @classmethod
    def of(cls, workers: Sequence[int], points: int = POINTS) -> "Ring":
        numbers = np.repeat(np.asarray(workers, dtype=np.int64), points)
        copies = np.tile(np.arange(points, dtype=np.uint64), len(workers))
        places = hashed((numbers.astype(np.uint64) << np.uint64(20)) | copies, 1)
        order = np.argsort(places)
        return cls(places[order], numbers[order])

    def owners(self, cards: int) -> NDArray[np.int64]:
        """The worker of each card."""
        return np.asarray(self.clockwise_of_all(cards, 1)[0])

    def clockwise_of_all(self, cards: int, depth: int) -> NDArray[np.int64]:
        """For each card the first `depth` different workers clockwise, its own first: (depth, cards)."""
        count = len(self.points)
        places, found = np.arange(count), np.empty((depth, count), dtype=np.int64)
        for level in range(depth):
            while (seen := (found[:level] == self.workers[places]).any(axis=0)).any():
                places = np.where(seen, (places + 1) % count, places)
            found[level] = self.workers[places]
        first = np.searchsorted(self.points, hashed(np.arange(cards, dtype=np.uint64), 2))
        return np.asarray(found[:, first % count])

    def clockwise(self, card: int) -> Iterator[int]:
        """Every worker once, the card's own first."""
        start = int(np.searchsorted(self.points, hashed(np.array([card], dtype=np.uint64), 2))[0])
        seen: set[int] = set()
        for step in range(len(self.points)):
            worker = int(self.workers[(start + step) % len(self.points)])
            if worker not in seen:
                seen.add(worker)
                yield worker


def hashed(numbers: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """The finaliser of splitmix64, for each number."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(salt) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))


@dataclass(frozen=True)
class Random:
    workers: int
    rng: np.random.Generator

    def choose(self, card: int, load: NDArray[np.int64]) -> int:  # noqa: ARG002
        return int(self.rng.integers(self.workers))

    def homes(self) -> None:
        return None


@dataclass(frozen=True)
class LeastLoaded:
    """The worker with the fewest questions, whatever it holds."""

    def choose(self, card: int, load: NDArray[np.int64]) -> int:  # noqa: ARG002
        return int(load.argmin())

    def homes(self) -> None:
        return None


@dataclass(frozen=True)
class Hashing:
    """Always the card's own worker."""

    owners: NDArray[np.int64]

    def choose(self, card: int, load: NDArray[np.int64]) -> int:  # noqa: ARG002
        return int(self.owners[card])

    def homes(self) -> Homes:
        return Homes(np.arange(len(self.owners)), self.owners, np.ones(len(self.owners)))


@dataclass(frozen=True)
class _Walk:
    """The workers clockwise from a card, as far as anyone went."""

    rest: Iterator[int]
    workers: list[int] = field(default_factory=list)

    def __iter__(self) -> Iterator[int]:
        yield from self.workers
        for worker in self.rest:
            self.workers.append(worker)
            yield worker


@dataclass(frozen=True)
class Bounded:
    """The card's own worker, or the next one clockwise that has fewer questions than (1 + slack) times the mean."""

    ring: Ring
    owners: NDArray[np.int64]
    slack: float
    _walks: dict[int, "_Walk"] = field(default_factory=dict)

    def choose(self, card: int, load: NDArray[np.int64]) -> int:
        limit = np.ceil((1 + self.slack) * (load.sum() + 1) / len(load))
        own = int(self.owners[card])
        if load[own] < limit:
            return own
        walk = self._walks.setdefault(card, _Walk(self.ring.clockwise(card)))
        return next(worker for worker in walk if load[worker] < limit)

    def homes(self) -> Homes:
        """With the next workers, to which a card's questions overflow."""
        count, depth = len(self.owners), min(DEPTH, len(set(self.ring.workers.tolist())))
        parts = (1 - OVERFLOW) * OVERFLOW ** np.arange(depth)
        workers = self.ring.clockwise_of_all(count, depth)
        return Homes(np.tile(np.arange(count), depth), workers.ravel(), np.repeat(parts, count))


@dataclass(frozen=True)
class Replicated:
    """Hot cards belong to several workers, and a question goes to the least loaded of them; else as Bounded.

    `replicas`: the workers of cards that have more than one.
    """

    bounded: Bounded
    replicas: dict[int, NDArray[np.int64]]

    @classmethod
    def of(
        cls, ring: Ring, owners: NDArray[np.int64], shares: NDArray[np.float64], slack: float
    ) -> "Replicated":
        """A card whose questions fill x workers evenly loaded has 1 + 2 x replicas, rounded down."""
        workers = len(set(ring.workers.tolist()))
        copies = np.minimum(1 + 2 * shares * workers, workers).astype(int)
        replicas = {
            int(card): np.array(list(islice(ring.clockwise(int(card)), copies[card])))
            for card in np.flatnonzero(copies > 1)
        }
        return cls(Bounded(ring, owners, slack), replicas)

    def choose(self, card: int, load: NDArray[np.int64]) -> int:
        workers = self.replicas.get(card)
        if workers is None:
            return self.bounded.choose(card, load)
        return int(workers[load[workers].argmin()])

    def homes(self) -> Homes:
        common = self.bounded.homes()
        hot = np.isin(common.cards, list(self.replicas))
        sizes = np.array([len(workers) for workers in self.replicas.values()], dtype=np.int64)
        return Homes(
            np.concatenate(
                [common.cards[~hot], np.repeat(np.array(list(self.replicas), dtype=np.int64), sizes)]
            ),
            np.concatenate([common.workers[~hot], *self.replicas.values()]),
            np.concatenate([common.parts[~hot], np.repeat(1 / np.maximum(sizes, 1), sizes)]),
        )
