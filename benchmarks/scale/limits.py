"""What breaks first: how many machines each part of the system needs for so many cards and questions a second."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.equilibrium import che
from benchmarks.scale.fleet import UTILISATION, workers_for
from benchmarks.scale.inputs import Kind, Parts
from benchmarks.scale.workload import zipf

__all__ = ["Need", "need"]

CORES = 2


@dataclass(frozen=True)
class Need:
    """Machines of two cores that each part needs if they are used all the time. Of the hub there is one; of the others
    as many as needed. `workers`: at 70 %, for the questions and for the loads that hold them up.

    `hits`: share of the questions whose card is in memory. `megabytes`: that the hub sends a second.
    """

    cards: int
    rate: float
    workers: int
    hits: float
    megabytes: float
    parts: dict[str, float]

    @property
    def first(self) -> str:
        """Of the parts beside the workers, the one that needs most machines, if it needs more than one; else ''."""
        others = {name: machines for name, machines in self.parts.items() if name not in ("cards", "loads")}
        most = max(others, key=lambda name: others[name])
        return most if others[most] > 1 else ""


def need(kind: Kind, parts: Parts, cards: int, rate: float, exponent: float = 1.0) -> Need:
    """Cards are placed by consistent hashing, so that the workers' memories together are one large cache."""
    shares, costs = zipf(cards, exponent), kind.costs(parts)
    workers = workers_for(kind, rate)
    while True:
        tiers = _tiers(kind, workers, shares)
        loading = rate * sum(share * costs.load(tier) for tier, share in enumerate(tiers))
        needed = max(1, round((rate / kind.rate + loading) / UTILISATION + 0.499))
        if needed <= workers:
            break
        workers = needed
    downloads = rate * tiers[3]
    megabytes = downloads * kind.megabytes
    return Need(
        cards, rate, workers, tiers[0], megabytes,
        {
            "cards": rate / kind.rate,
            "loads": loading,
            "LLM": rate / parts.llm,
            "choice": rate * parts.choice * cards / 1_000_000 / CORES,
            "hub, network": megabytes / parts.bandwidth,
            "hub, metadata": (workers * parts.poll + 2 * downloads) * parts.request / CORES,
        },
    )  # fmt: skip


def _tiers(kind: Kind, workers: int, shares: NDArray[np.float64]) -> list[float]:
    """The share of the questions whose card is in memory, page cache, disk, and at the hub alone."""
    below, found = 0.0, []
    for number in range(3):
        capacity = workers * sum(kind.capacities(len(shares))[: number + 1])
        upto = float((shares * che(shares, capacity)).sum())
        found.append(max(0.0, upto - below))
        below = upto
    return [*found, max(0.0, 1 - below)]
