"""Whether one way of answering beats another on the same questions, and whether that holds where many were tried."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["holm", "sign_flip"]

DRAWS = 10_000
CELLS = 5_000_000  # numbers held at once


def sign_flip(differences: npt.NDArray[np.float64], seed: int = 0, draws: int = DRAWS) -> float:
    """Two-sided p of the paired permutation test (Fisher, 1935): each difference could as well have the other sign.

    Of right and wrong answers it is McNemar's test, by simulation. At least 1 / (draws + 1), so never 0; 1 where
    nothing differs.
    """
    values = differences[differences != 0]
    if not len(values):
        return 1.0
    random, found = np.random.default_rng(seed), abs(values.sum())
    as_far, block = 0, max(1, CELLS // len(values))
    for start in range(0, draws, block):
        signs = random.integers(0, 2, (min(block, draws - start), len(values)), dtype=np.int8) * 2 - 1
        as_far += int((np.abs(signs @ values) >= found - 1e-9).sum())
    return (as_far + 1) / (draws + 1)


def holm(ps: Sequence[float]) -> list[float]:
    """Each p for all of them at once (Holm, 1979): below 0.05, its finding is not one of the luckiest of many."""
    adjusted, worst = [1.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = worst
    return adjusted
