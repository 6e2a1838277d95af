"""Which worker a question goes to, by its card and by how much each worker has to do.

Consistent hashing with bounded loads: Mirrokni, Thorup, Zadimoghaddam, SODA 2018.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.ring import Ring

__all__ = [
    "POLICIES",
    "Bounded",
    "Hashing",
    "Homes",
    "LeastLoaded",
    "Placement",
    "Random",
    "Replicated",
    "placement",
]

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
