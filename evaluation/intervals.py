"""How sure a mean, or any other statistic of a sample, is."""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["bootstrap_interval", "interval"]

RESAMPLES = 1000
LEVEL = 0.95


def interval(
    values: Sequence[float], seed: int = 0, level: float = LEVEL, *, paired: bool = False
) -> tuple[float, float]:
    """An interval of the mean; (nan, nan) for no values.

    Of shares and scores in [0, 1] it is Wilson's score interval (1927), which has a width even where all values are the
    same; for scores between 0 and 1, whose variance is smaller, it is rather too wide. `paired`: of differences between
    two measurements of the same items, in [-1, 1], it is the percentile interval of the bootstrap (Efron, 1979).
    """
    if not values:
        return float("nan"), float("nan")
    sample = np.asarray(values, dtype=np.float64)
    if not paired:
        return _wilson(float(sample.mean()), len(sample), level)
    if sample.min() == sample.max():
        low, high = _wilson((float(sample[0]) + 1) / 2, len(sample), level)
        return 2 * low - 1, 2 * high - 1
    return bootstrap_interval(np.mean, sample, seed=seed, level=level)


def bootstrap_interval(
    statistic: Callable[..., Any],
    *columns: npt.ArrayLike,
    seed: int = 0,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """The percentile interval of the bootstrap (Efron, 1979) of a statistic of items; (nan, nan) for no items.

    `columns`: what is known of each item, shape (n,) each. Items are drawn with replacement and keep their values in
    all columns, so with two settings as columns it is the paired interval of whatever compares them:

        bootstrap_interval(lambda a, b, right: macro_f1(a, right) - macro_f1(b, right), first, second, right)
    """
    samples = [np.asarray(column) for column in columns]
    count = len(samples[0])
    if not count:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    found = []
    for _ in range(resamples):
        rows = random.integers(0, count, count)
        found.append(statistic(*(sample[rows] for sample in samples)))
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _wilson(mean: float, count: int, level: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count))
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))
