"""How an answer or a passage compares with the accepted answers, and how sure a mean of such numbers is.

Texts are normalised as SQuAD's official script does it: lower case, no ASCII punctuation, no articles, single
spaces. Accents are kept, as there: "Beyonce" is not "Beyoncé".
"""

import functools
import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import NormalDist

import numpy as np

__all__ = ["Searched", "exact_match", "f1", "interval", "normalise", "substring"]

PUNCTUATION = str.maketrans("", "", string.punctuation)
POSSESSIVE = re.compile(r"['’]s\b")
ARTICLES = re.compile(r"\b(a|an|the)\b")
RESAMPLES = 1000


@functools.lru_cache(maxsize=100_000)
def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, words separated by one space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, accepted: Sequence[str]) -> float:
    """1.0 where the prediction equals an accepted answer once both are normalised, else 0.0."""
    return float(normalise(prediction) in {normalise(answer) for answer in accepted})


def f1(prediction: str, accepted: Sequence[str]) -> float:
    """The best harmonic mean of precision and recall over words, in [0, 1], among the accepted answers."""
    return max((_overlap(normalise(prediction).split(), normalise(a).split()) for a in accepted), default=0.0)


def substring(text: str, accepted: Sequence[str]) -> bool:
    """Whether an accepted answer occurs in the text as whole words, both normalised.

    A possessive is a word too: "Saturn" occurs in "Saturn's rings", where SQuAD's script would see "saturns". An
    answer that normalisation empties ("A") is sought as it is.
    """
    return Searched(text).holds(accepted)


class Searched:
    """A text made ready, once, for many searches by `substring`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = f" {normalise(text)} | {normalise(POSSESSIVE.sub('', text))} "

    def holds(self, accepted: Iterable[str]) -> bool:
        return any(
            f" {short} " in self._words if (short := normalise(answer)) else answer in self._text
            for answer in accepted
        )


def interval(
    values: Sequence[float], seed: int = 0, level: float = 0.95, *, paired: bool = False
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
    random = np.random.default_rng(seed)
    means = [sample[random.integers(0, len(sample), len(sample))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _wilson(mean: float, count: int, level: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count))
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


def _overlap(predicted: list[str], accepted: list[str]) -> float:
    if not predicted or not accepted:
        return float(predicted == accepted)
    common = (Counter(predicted) & Counter(accepted)).total()
    return 2 * common / (len(predicted) + len(accepted))
