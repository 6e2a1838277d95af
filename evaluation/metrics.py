"""Metrics of answers, confidence intervals and paired tests.

Texts are normalised as in SQuAD's official script: lower case, no ASCII punctuation, no articles, single spaces. As
there, accents are kept: "Beyonce" is not "Beyoncé".
"""

import functools
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

PUNCTUATION = str.maketrans("", "", string.punctuation)
POSSESSIVE = re.compile(r"['’]s\b")
ARTICLES = re.compile(r"\b(a|an|the)\b")


@functools.lru_cache(maxsize=100_000)
def normalise(text: str) -> str:
    """Return the text in lower case, without punctuation and articles, words separated by one space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, accepted: Sequence[str]) -> float:
    """Return 1.0 if the prediction equals an accepted answer, both normalised, else 0.0."""
    return float(normalise(prediction) in {normalise(answer) for answer in accepted})


def f1(prediction: str, accepted: Sequence[str]) -> float:
    """Return the highest word-level F1, in [0, 1], over the accepted answers."""
    predicted, best = normalise(prediction).split(), 0.0
    for answer in accepted:
        words = normalise(answer).split()
        if not predicted or not words:
            score = float(predicted == words)
        else:
            score = 2 * (Counter(predicted) & Counter(words)).total() / (len(predicted) + len(words))
        best = max(best, score)
    return best


def substring(text: str, accepted: Sequence[str]) -> bool:
    """Return whether an accepted answer occurs in the text as whole words, both normalised.

    Possessives match too: "Saturn" occurs in "Saturn's rings", where SQuAD's script would see "saturns". An answer that
    is empty after normalisation ("A") is searched for verbatim.
    """
    return SearchableText(text).holds(accepted)


class SearchableText:
    """A text that is normalised once, for many searches as by `substring`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = f" {normalise(text)} | {normalise(POSSESSIVE.sub('', text))} "

    def holds(self, accepted: Iterable[str]) -> bool:
        for answer in accepted:
            normalised = normalise(answer)
            if normalised and f" {normalised} " in self._words:
                return True
            if not normalised and answer in self._text:
                return True
        return False


# Accuracy of chosen options and classes.

Labels = Sequence[str] | npt.NDArray[np.str_]


def accuracy(chosen: str, right: Sequence[str]) -> float:
    """Return 1.0 if the letter of the chosen option is among the right ones, else 0.0; "" (no choice) is wrong."""
    return float(bool(chosen) and chosen in right)


def balanced_accuracy(predicted: Labels, actual: Labels) -> float:
    """Return the mean of the recalls of the classes that occur in `actual`, in [0, 1]; nan for no items.

    A prediction that is not a class, such as "", is wrong.
    """
    guessed, true = np.asarray(predicted), np.asarray(actual)
    recalls = [float((guessed[true == name] == name).mean()) for name in np.unique(true)]
    if not recalls:
        return float("nan")
    return float(np.mean(recalls))


def macro_f1(predicted: Labels, actual: Labels, classes: Sequence[str] = ()) -> float:
    """Return the mean of the F1 of `classes`, by default those that occur in `actual`, in [0, 1]; nan for no class.

    The F1 of a class that neither occurs nor is predicted is 0.
    """
    guessed, true = np.asarray(predicted), np.asarray(actual)
    scores = []
    for name in classes or np.unique(true):
        hits = float(((guessed == name) & (true == name)).sum())
        together = float((guessed == name).sum() + (true == name).sum())
        scores.append(2 * hits / max(together, 1.0))
    if not scores:
        return float("nan")
    return float(np.mean(scores))


# Confidence intervals of means and other statistics of a sample.

BOOTSTRAP_RESAMPLES = 1000
CONFIDENCE_LEVEL = 0.95


def interval(
    values: Sequence[float], seed: int = 0, level: float = CONFIDENCE_LEVEL, *, paired: bool = False
) -> tuple[float, float]:
    """Return a confidence interval of the mean; (nan, nan) for no values.

    For shares and scores in [0, 1], it is Wilson's score interval (1927), which has a width even if all values are
    equal; it is conservative for scores between 0 and 1, whose variance is smaller. `paired`: for differences between
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
    level: float = CONFIDENCE_LEVEL,
    resamples: int = BOOTSTRAP_RESAMPLES,
) -> tuple[float, float]:
    """Return the percentile interval of the bootstrap (Efron, 1979) of a statistic of items; (nan, nan) for no items.

    `columns`: values of the items, shape (n,) each. Items are drawn with replacement and keep their values in all
    columns, so if two settings are columns, the interval of a statistic that compares them is paired:

        bootstrap_interval(lambda a, b, right: macro_f1(a, right) - macro_f1(b, right), first, second, right)
    """
    samples = [np.asarray(column) for column in columns]
    count = len(samples[0])
    if not count:
        return float("nan"), float("nan")
    random = np.random.default_rng(seed)
    statistics = []
    for _ in range(resamples):
        rows = random.integers(0, count, count)
        statistics.append(statistic(*(sample[rows] for sample in samples)))
    low, high = np.quantile(statistics, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def balanced_interval(
    predicted: Labels, actual: Labels, level: float = CONFIDENCE_LEVEL
) -> tuple[float, float]:
    """Return a confidence interval of the balanced accuracy; (nan, nan) for no items.

    Wilson's intervals of the recalls are combined (MOVER; Zou and Donner, 2008). Unlike the bootstrap's, it has a width
    even if all predictions are wrong, or all right.
    """
    guessed, true = np.asarray(predicted), np.asarray(actual)
    below = above = 0.0
    classes = np.unique(true)
    for name in classes:
        hits = guessed[true == name] == name
        recall = float(hits.mean())
        low, high = _wilson(recall, len(hits), level)
        below, above = below + (recall - low) ** 2, above + (high - recall) ** 2
    mean, count = balanced_accuracy(predicted, actual), len(classes)
    if not count:
        return float("nan"), float("nan")
    return max(0.0, mean - math.sqrt(below) / count), min(1.0, mean + math.sqrt(above) / count)


def _wilson(mean: float, count: int, level: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count))
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


# Paired tests of two settings on the same questions, and Holm's correction for several tests.

PERMUTATIONS = 10_000
MAX_SIGNS = 5_000_000  # in memory at a time


@dataclass(frozen=True)
class Comparison:
    """Two settings on the same n questions.

    difference  mean score of the first minus that of the second, with its 95 % interval (paired bootstrap)
    better      number of questions on which the first scores higher; `worse`: lower
    p           two-sided, by `test`: mcnemar if every score is 0 or 1, else permutation
    """

    n: int
    difference: float
    low: float
    high: float
    better: int
    worse: int
    p: float
    test: Literal["mcnemar", "permutation"]


def compare_scores(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Comparison:
    """Compare two settings by their scores in [0, 1] on the same questions, in the same order.

    Raises ValueError for no scores, or if the numbers of scores differ.
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
    """Return the two-sided p of McNemar's exact test (1947); 1 if the settings don't differ.

    Only the first setting answers `better` questions correctly, only the second one `worse` questions. Under the null
    hypothesis each of them is of either kind with probability 1/2.
    """
    from scipy.stats import binomtest

    if better == worse:
        return 1.0
    return float(binomtest(better, better + worse).pvalue)


def sign_flip(differences: npt.NDArray[np.float64], seed: int = 0, draws: int = PERMUTATIONS) -> float:
    """Return the two-sided p of the paired permutation test (Fisher, 1935), which flips the signs of differences.

    For right and wrong answers it is McNemar's test by simulation. It is at least 1 / (draws + 1), and 1 without
    differences.
    """
    values = differences[differences != 0]
    if not len(values):
        return 1.0
    random, observed = np.random.default_rng(seed), abs(values.sum())
    as_far, block = 0, max(1, MAX_SIGNS // len(values))
    for start in range(0, draws, block):
        signs = random.integers(0, 2, (min(block, draws - start), len(values)), dtype=np.int8) * 2 - 1
        as_far += int((np.abs(signs @ values) >= observed - 1e-9).sum())
    return (as_far + 1) / (draws + 1)


def holm(ps: Sequence[float]) -> list[float]:
    """Correct p values for multiple tests by Holm's step-down method (1979)."""
    adjusted, worst = [1.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = worst
    return adjusted


# Rounding, and a histogram of scores for a table cell.

DIGITS = 6


def round_floats(value: Any) -> Any:
    """Round floats to six decimals, also inside mappings and lists; infinity and nan become None.

    Further digits of a score depend on the batch in which it was computed.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return round(value, DIGITS)
    if isinstance(value, Mapping):
        return {key: round_floats(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [round_floats(inner) for inner in value]
    return value


BLOCKS = "▁▂▃▄▅▆▇█"


def count_by_range(scores: Sequence[float], bins: int = 10) -> list[int]:
    """Count the scores in [0, 1] that fall into each of `bins` equal ranges; 1.0 belongs to the last."""
    totals = [0] * bins
    for score in scores:
        totals[min(int(max(score, 0.0) * bins), bins - 1)] += 1
    return totals


def draw_histogram(scores: Sequence[float], bins: int = 10) -> str:
    """Draw one character per range, as high as its share of the fullest; the lowest block is an empty range.

    Returns "" for no scores.
    """
    if not scores:
        return ""
    totals = count_by_range(scores, bins)
    most = max(totals)
    drawing = ""
    for total in totals:
        height = round(total / most * (len(BLOCKS) - 1))
        if total:
            height = max(1, height)  # a range with any score is drawn higher than an empty one
        drawing += BLOCKS[height]
    return drawing
