"""Caches that have been in use for long: what they hold, and how often they hit, under independent reference."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.scale.cache import AGE, Tiers

__all__ = ["che", "filled", "recent"]


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
