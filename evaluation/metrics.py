"""Metrics of answers, intervals and paired tests.

Texts are normalised as SQuAD's official script does it: lower case, no ASCII punctuation, no articles, single
spaces. Accents are kept, as there: "Beyonce" is not "Beyoncé".
"""

import functools
import math
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "BLOCKS",
    "Comparison",
    "SearchableText",
    "accuracy",
    "balanced_accuracy",
    "bootstrap_interval",
    "compare_scores",
    "counts",
    "exact_match",
    "f1",
    "histogram",
    "holm",
    "interval",
    "macro_f1",
    "mcnemar",
    "normalise",
    "sign_flip",
    "substring",
]


PUNCTUATION = str.maketrans("", "", string.punctuation)
POSSESSIVE = re.compile(r"['’]s\b")
ARTICLES = re.compile(r"\b(a|an|the)\b")


@functools.lru_cache(maxsize=100_000)
def normalise(text: str) -> str:
    """Return the text in lower case, without punctuation and articles, words separated by one space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction: str, accepted: Sequence[str]) -> float:
    """Return 1.0 where the prediction equals an accepted answer once both are normalised, else 0.0."""
    return float(normalise(prediction) in {normalise(answer) for answer in accepted})


def f1(prediction: str, accepted: Sequence[str]) -> float:
    """Return the best harmonic mean of precision and recall over words, in [0, 1], among the accepted answers."""
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

    A possessive is a word too: "Saturn" occurs in "Saturn's rings", where SQuAD's script would see "saturns". An
    answer that normalisation empties ("A") is sought as it is.
    """
    return SearchableText(text).holds(accepted)


class SearchableText:
    """A text made ready, once, for many searches by `substring`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = f" {normalise(text)} | {normalise(POSSESSIVE.sub('', text))} "

    def holds(self, accepted: Iterable[str]) -> bool:
        return any(
            f" {short} " in self._words if (short := normalise(answer)) else answer in self._text
            for answer in accepted
        )


# How right chosen options and classes are.

Labels = Sequence[str] | npt.NDArray[np.str_]


def accuracy(chosen: str, right: Sequence[str]) -> float:
    """Return 1.0 where the letter of the chosen option is a right one, else 0.0; "" (none was chosen) is wrong."""
    return float(bool(chosen) and chosen in right)


def balanced_accuracy(predicted: Labels, actual: Labels) -> float:
    """Return the mean, over the classes that occur in `actual`, of the share of its items predicted rightly, in [0, 1].

    A prediction that is no class, such as "", is wrong. nan for no items.
    """
    guessed, true = np.asarray(predicted), np.asarray(actual)
    recalls = [float((guessed[true == name] == name).mean()) for name in np.unique(true)]
    return float(np.mean(recalls)) if recalls else float("nan")


def macro_f1(predicted: Labels, actual: Labels, classes: Sequence[str] = ()) -> float:
    """Return the mean of the F1 of each class, in [0, 1]; 0 for a class that neither occurs nor is predicted.

    `classes`: over which the mean is taken, by default those that occur in `actual`. nan where there is none.
    """
    guessed, true = np.asarray(predicted), np.asarray(actual)
    scores = []
    for name in classes or np.unique(true):
        hits = float(((guessed == name) & (true == name)).sum())
        together = float((guessed == name).sum() + (true == name).sum())
        scores.append(2 * hits / together if together else 0.0)
    return float(np.mean(scores)) if scores else float("nan")


# How sure a mean, or any other statistic of a sample, is.

RESAMPLES = 1000
LEVEL = 0.95


def interval(
    values: Sequence[float], seed: int = 0, level: float = LEVEL, *, paired: bool = False
) -> tuple[float, float]:
    """Return an interval of the mean; (nan, nan) for no values.

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
    """Return the percentile interval of the bootstrap (Efron, 1979) of a statistic of items; (nan, nan) for no items.

    `columns`: what is known of each item, shape (n,) each. Items are drawn with replacement and keep their values in
    all columns, so with two settings as columns it is the paired interval of whatever compares them:

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


def _wilson(mean: float, count: int, level: float) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(mean * (1 - mean) / count + z * z / (4 * count * count))
    return max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


# Whether one way of answering beats another on the same questions, and whether that holds where many were tried.

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


def compare_scores(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Comparison:
    """Compare the first setting with the second; their scores in [0, 1] belong to the same questions in the same order.

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
    """Return the two-sided p of McNemar's exact test (1947); 1 where the settings don't differ.

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
    """Return the two-sided p of the paired permutation test (Fisher, 1935): each difference could as well have the
    other sign.

    Of right and wrong answers it is McNemar's test by simulation. At least 1 / (draws + 1), so never 0; 1 where
    nothing differs.
    """
    values = differences[differences != 0]
    if not len(values):
        return 1.0
    random, observed = np.random.default_rng(seed), abs(values.sum())
    as_far, block = 0, max(1, CELLS // len(values))
    for start in range(0, draws, block):
        signs = random.integers(0, 2, (min(block, draws - start), len(values)), dtype=np.int8) * 2 - 1
        as_far += int((np.abs(signs @ values) >= observed - 1e-9).sum())
    return (as_far + 1) / (draws + 1)


def holm(ps: Sequence[float]) -> list[float]:
    """Adjust each p for all of them at once (Holm, 1979): below 0.05, its finding is not one of the luckiest of
    many."""
    adjusted, worst = [1.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        worst = max(worst, min(1.0, (len(ps) - rank) * ps[i]))
        adjusted[i] = worst
    return adjusted


# A histogram of scores that fits into a table cell.

BLOCKS = "▁▂▃▄▅▆▇█"


def counts(scores: Sequence[float], bins: int = 10) -> list[int]:
    """Count the scores in [0, 1] that fall into each of `bins` equal ranges; 1.0 belongs to the last."""
    totals = [0] * bins
    for score in scores:
        totals[min(int(max(score, 0.0) * bins), bins - 1)] += 1
    return totals


def histogram(scores: Sequence[float], bins: int = 10) -> str:
    """Draw one character per range, its height the share of the fullest; the lowest block is an empty range.

    Empty text for no scores.
    """
    if not scores:
        return ""
    totals = counts(scores, bins)
    most = max(totals)
    # A range that holds anything is never drawn as an empty one, however few.
    return "".join(BLOCKS[0 if n == 0 else max(1, round(n / most * (len(BLOCKS) - 1)))] for n in totals)
