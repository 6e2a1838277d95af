"""A simulated fleet: so many workers, in equilibrium from the start, under so many questions a second."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.equilibrium import filled
from benchmarks.scale.inputs import Kind, Parts
from benchmarks.scale.placement import Placement, placement
from benchmarks.scale.simulate import simulate
from benchmarks.scale.worker import BatchWorker, ContinuousWorker, Worker
from benchmarks.scale.workload import poisson, zipf

__all__ = ["LARGEST", "Fleet", "Outcome", "outcome", "workers_for"]

UTILISATION = 0.7
LARGEST = 5_000_000  # cards that all workers together may hold in the simulation: about a gigabyte


@dataclass(frozen=True)
class Fleet:
    """`workers`: None for as many as answer these questions at 70 % of what they can do without loads.

    `continuous`: questions join and leave a batch after any token, and cards load meanwhile; else a batch is answered
    to its end, a load makes it wait, and the cards used least often leave its memory, as in kcard's own engine.
    """

    kind: Kind
    cards: int
    rate: float
    zipf: float = 1.0
    policy: str = "bounded"
    continuous: bool = False
    workers: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """`hits`: share of questions whose card was in memory; `loads`: questions a second whose card came from page cache,
    disk and hub; `busy`: share of time in which workers were busy; `dollars`: of a million questions; `joules`: of one.
    """

    workers: int
    throughput: float
    mean: float
    p50: float
    p95: float
    p99: float
    hits: float
    loads: tuple[float, float, float]
    busy: float
    dollars: float
    joules: float

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def workers_for(kind: Kind, rate: float) -> int:
    return max(1, ceil(rate / kind.rate / UTILISATION))


def outcome(fleet: Fleet, parts: Parts, questions: int) -> Outcome:
    """What `questions` questions see, but for the first fifth."""
    count = fleet.workers or workers_for(fleet.kind, fleet.rate)
    shares = zipf(fleet.cards, fleet.zipf)
    policy = placement(fleet.policy, count, shares, seed=fleet.seed)
    workers = _workers(fleet, parts, count, policy, shares)
    answered = simulate(poisson(fleet.rate, questions, shares, fleet.seed), workers, policy)
    found = answered.figures()
    span = answered.answered.max() - answered.arrived[0]
    first, second, third = (found.throughput * share for share in (*found.tiers[1:], 0.0, 0.0, 0.0)[:3])
    return Outcome(
        workers=count,
        throughput=found.throughput,
        mean=found.mean,
        p50=found.p50,
        p95=found.p95,
        p99=found.p99,
        hits=found.hits,
        loads=(first, second, third),
        busy=sum(worker.busy for worker in workers) / count / span,
        dollars=1e6 * count * fleet.kind.hour / 3600 / fleet.rate,
        joules=count * fleet.kind.watts / fleet.rate,
    )


def _workers(
    fleet: Fleet, parts: Parts, count: int, policy: Placement, shares: NDArray[np.float64]
) -> list[Worker]:
    rng = np.random.default_rng(fleet.seed)
    capacities = fleet.kind.capacities(fleet.cards)
    costs = fleet.kind.costs(parts)
    made: list[Worker] = []
    for cards, rates in _homes(policy, count, shares):
        if count * min(sum(capacities), len(cards)) > LARGEST:
            raise ValueError(
                f"{count} workers with up to {min(sum(capacities), len(cards)):,} cards each are more than the "
                f"{LARGEST:,} cards that fit into a simulation: try fewer workers, another policy or --set disk=0"
            )
        tiers = filled(capacities, not fleet.continuous, cards, rates, rng)
        worker: Worker = (
            ContinuousWorker(costs, tiers, fleet.kind.most)
            if fleet.continuous
            else BatchWorker(costs, tiers, fleet.kind.most, fleet.kind.mixed)
        )
        made.append(worker)
    return made


def _homes(
    policy: Placement, count: int, shares: NDArray[np.float64]
) -> Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """The cards that each worker answers for, and how often, in relation to each other."""
    if (homes := policy.homes()) is None:
        return [(np.arange(len(shares)), shares)] * count
    order = np.argsort(homes.workers, kind="stable")
    ends = np.cumsum(np.bincount(homes.workers, minlength=count))[:-1]
    rates = (shares[homes.cards] * homes.parts)[order]
    return list(zip(np.split(homes.cards[order], ends), np.split(rates, ends), strict=True))
