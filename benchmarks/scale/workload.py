"""Which card is asked when: popularity by Zipf's law, arrivals by a Poisson process."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Trace", "poisson", "zipf"]


@dataclass(frozen=True)
class Trace:
    """Questions in the order in which they arrive. `times`: seconds, `cards`: the number of each question's card."""

    times: NDArray[np.float64]
    cards: NDArray[np.int64]


def zipf(cards: int, exponent: float) -> NDArray[np.float64]:
    """The share of the questions that each card gets, most popular first: proportional to 1 / rank ** exponent."""
    weights = np.arange(1, cards + 1, dtype=np.float64) ** -exponent
    return np.asarray(weights / weights.sum())


def poisson(rate: float, questions: int, shares: NDArray[np.float64], seed: int) -> Trace:
    """So many questions at `rate` a second, each of a card drawn by its share, independent of the others."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(1 / rate, questions))
    drawn = np.searchsorted(np.cumsum(shares), rng.random(questions), side="right")
    return Trace(times, np.minimum(drawn, len(shares) - 1).astype(np.int64))
