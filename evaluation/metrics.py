"""How an answer or a passage compares with the accepted answers, and how sure a mean of such numbers is.

Texts are normalised as SQuAD's official script does it: lower case, no ASCII punctuation, no articles, single
spaces. Accents are kept, as there: "Beyonce" is not "Beyoncé".
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

__all__ = ["exact_match", "f1", "interval", "normalise", "substring"]

PUNCTUATION = str.maketrans("", "", string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")


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

    An answer that normalisation empties ("A") is sought as it is.
    """
    words = f" {normalise(text)} "
    return any(
        f" {short} " in words if (short := normalise(answer)) else answer in text for answer in accepted
    )


def interval(
    values: Sequence[float], seed: int = 0, level: float = 0.95, resamples: int = 1000
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean (Efron, 1979); (nan, nan) for no values."""
    if not values:
        return float("nan"), float("nan")
    sample = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(0, len(sample), (resamples, len(sample)))
    low, high = np.quantile(sample[draws].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _overlap(predicted: list[str], accepted: list[str]) -> float:
    if not predicted or not accepted:
        return float(predicted == accepted)
    common = (Counter(predicted) & Counter(accepted)).total()
    return 2 * common / (len(predicted) + len(accepted))
