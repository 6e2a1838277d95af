"""Consistent hashing: Karger and others, STOC 1997."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ring"]

POINTS = 128


@dataclass(frozen=True)
class Ring:
    """Workers on a circle of hashes, each at many points; a card belongs to the next point clockwise."""

    points: NDArray[np.uint64]
    workers: NDArray[np.int64]

    @classmethod
    def of(cls, workers: Sequence[int], points: int = POINTS) -> "Ring":
        numbers = np.repeat(np.asarray(workers, dtype=np.int64), points)
        copies = np.tile(np.arange(points, dtype=np.uint64), len(workers))
        places = _hashed((numbers.astype(np.uint64) << np.uint64(20)) | copies, 1)
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
        first = np.searchsorted(self.points, _hashed(np.arange(cards, dtype=np.uint64), 2))
        return np.asarray(found[:, first % count])

    def clockwise(self, card: int) -> Iterator[int]:
        """Every worker once, the card's own first."""
        start = int(np.searchsorted(self.points, _hashed(np.array([card], dtype=np.uint64), 2))[0])
        seen: set[int] = set()
        for step in range(len(self.points)):
            worker = int(self.workers[(start + step) % len(self.points)])
            if worker not in seen:
                seen.add(worker)
                yield worker


def _hashed(numbers: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """The finaliser of splitmix64, for each number."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(salt) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)))
