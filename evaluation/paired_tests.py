"""Whether one way of answering beats another on the same questions, and whether that holds where many were tried."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from kcard.evaluation.intervals import interval

__all__ = ["Comparison", "compared", "holm", "mcnemar", "sign_flip"]

DRAWS = 10_000
CELLS = 5_000_000  # numbers held at once


@dataclass(frozen=True)
class Comparison:
    """Two settings on the same n questions.

    difference  mean score of the first less that of the second, with its 95 % interval (paired bootstrap)
    better      questions on which the first scores higher; `worse`: lower
    p           two-sided, by `test`: mcnemar where every score is 0 or 1, else permutation
    """

    n: int
    difference: float
    low: float
    high: float
    better: int
    worse: int
    p: float
    test: Literal["mcnemar", "permutation"]


def compared(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Comparison:
    """The first setting against the second, whose scores in [0, 1] belong to the same questions in the same order.

    Raises ValueError for none, or for scores of different numbers of questions.
    """
    if len(first) != len(second) or not first:
        raise ValueError(
            f"{len(first)} and {len(second)} scores: expected both of the same questions, one or more"
        )
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    better, worse = int((differences > 0).sum()), int((differences < 0).sum())
    low, high = interval(differences.tolist(), seed, paired=True)
    exact = all(score in {0, 1} for score in (*first, *second))
    return Comparison(
        n=len(differences),
        difference=float(differences.mean()),
        low=low,
        high=high,
        better=better,
        worse=worse,
        p=mcnemar(better, worse) if exact else sign_flip(differences, seed),
        test="mcnemar" if exact else "permutation",
    )


def mcnemar(better: int, worse: int) -> float:
    """Two-sided p of McNemar's exact test (1947); 1 where the settings don't differ.

    `better` questions are right with the first setting only, `worse` with the second only; had neither an edge, each
    of them could as well be of the other kind.
    """
    n = better + worse
    ways = below = 1  # of choosing k of n, and of choosing at most k
    for k in range(min(better, worse)):
        ways = ways * (n - k) // (k + 1)
        below += ways
    return min(1.0, below / (1 << n) * 2)


def sign_flip(differences: npt.NDArray[np.float64], seed: int = 0, draws: int = DRAWS) -> float:
    """Two-sided p of the paired permutation test (Fisher, 1935): each difference could as well have the other sign.

    Of right and wrong answers it is McNemar's test by simulation. At least 1 / (draws + 1), so never 0; 1 where
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
