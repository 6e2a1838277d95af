"""Outcomes of gates on records: accuracy, share of questions that ask cards, and ranking."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.evaluation.metrics import exact_match, f1, substring
from kcard.gates.records import Record

__all__ = [
    "BINS",
    "FOLDS",
    "METRICS",
    "SHARES",
    "CurvePoint",
    "Floats",
    "GateOutcome",
    "GateRanking",
    "Indices",
    "Metric",
    "accuracy",
    "best_within_budget",
    "calibration_error",
    "cost_curve",
    "gated_scores",
    "parse_fold_count",
    "scores_both_ways",
    "split_folds",
]


# The ways in which an LLM's answer is scored against the accepted ones, by name.

Metric = Literal["substring", "em", "f1", "accuracy"]
WORD = re.compile(r"\w+")


def accuracy(text: str, accepted: Sequence[str]) -> float:
    """Return 1.0 where the reply's first words are an accepted label ("B" of "B. Paris", "Yes" of "Yes, since ..."),
    else 0.0.

    For choices and classes. Articles count here, unlike in the other measures: "A" is a label.
    """
    words = WORD.findall(text.casefold())
    labels = [WORD.findall(label.casefold()) for label in accepted]
    return float(any(label and words[: len(label)] == label for label in labels))


METRICS: Mapping[Metric, Callable[[str, Sequence[str]], float]] = {
    "substring": lambda text, accepted: float(substring(text, accepted)),
    "em": exact_match,
    "f1": f1,
    "accuracy": accuracy,
}


# Records cut into folds, each of which is held out once while a gate is fitted on the others.

FOLDS = 5
LEAVE_ONE_OUT = "loo"
Indices = npt.NDArray[np.intp]


def split_folds(records: Sequence[Record], count: int | None = FOLDS, seed: int = 0) -> list[Indices]:
    """Return the held-out records of each fold, ascending; every record is held out exactly once.

    count  how many; None: as many as records, each held out alone (leave one out)
    seed   which records share a fold; the same always gives the same

    The folds have equal parts, as far as may be, of the records where cards helped, did not, and were wrong both
    ways, so that few of a kind do not meet in one fold. Raises UsageError for fewer than two folds or records.
    """
    if len(records) < 2:
        raise UsageError("one record can't be held out and fitted on: give more records")
    if count is None:
        return [np.array([i]) for i in range(len(records))]
    if not 2 <= count <= len(records):
        raise UsageError(f"folds is {count}: it must be between 2 and the {len(records)} records, or loo")
    shuffled = np.random.default_rng(seed).permutation(len(records))
    kinds = np.array([record.seeks + 2 * record.wrong_both_ways for record in records])[shuffled]
    dealt = shuffled[np.argsort(kinds, kind="stable")]
    return [np.sort(dealt[first::count]) for first in range(count)]


def parse_fold_count(text: str) -> int | None:
    """Parse a number of folds as people write it, or loo, which is None. Raises UsageError for anything else."""
    if text == LEAVE_ONE_OUT:
        return None
    if not text.isdecimal():
        raise UsageError(f"folds {text!r}: give a number such as {FOLDS}, or {LEAVE_ONE_OUT}")
    return int(text)


Floats = npt.NDArray[np.float64]
Seeks = npt.NDArray[np.bool_]
DIGITS = 6


@dataclass(frozen=True)
class GateOutcome:
    """Shares and accuracies in [0, 1], over every record, those that were wrong both ways included.

    accuracy             mean of correct_with where the gate seeks knowledge, of correct_without elsewhere
    share                of the questions that seek
    beneficial_guidance  among records whose outcome differs with and without cards, the share that the gate sends the
                         better way (SKR, section 5); None where there is no such record
    over_asking          share of the questions that seek although the answer without cards is as good
    under_asking         share of the questions that do not seek although cards would improve the answer
    never, always        accuracy without any cards, and with cards for every question
    oracle               accuracy of a gate that is always right
    random_same_share    expected accuracy where the same share of the questions seeks, drawn at random
    """

    n: int
    accuracy: float
    share: float
    beneficial_guidance: float | None
    over_asking: float
    under_asking: float
    never: float
    always: float
    oracle: float
    random_same_share: float

    @classmethod
    def of(cls, records: Sequence[Record], seeks: Seeks) -> "GateOutcome":
        """Measure decisions. `seeks`: shape (n,), whether the gate sends each record to the cards."""
        without, with_ = scores_both_ways(records)
        share, never, always = float(seeks.mean()), float(without.mean()), float(with_.mean())
        differs = without != with_
        right = seeks[differs] == (with_ > without)[differs]
        return cls(
            n=len(records),
            accuracy=float(gated_scores(records, seeks).mean()),
            share=share,
            beneficial_guidance=float(right.mean()) if right.size else None,
            over_asking=float((seeks & (without >= with_)).mean()),
            under_asking=float((~seeks & (without < with_)).mean()),
            never=never,
            always=always,
            oracle=float(np.maximum(without, with_).mean()),
            random_same_share=(1 - share) * never + share * always,
        )

    def to_json(self) -> dict[str, Any]:
        return {key: round(v, DIGITS) if isinstance(v, float) else v for key, v in asdict(self).items()}


def scores_both_ways(records: Sequence[Record]) -> tuple[Floats, Floats]:
    """Return the score of each answer without cards, and with them; shape (n,) each."""
    without = np.array([record.correct_without for record in records], dtype=np.float64)
    return without, np.array([record.correct_with for record in records], dtype=np.float64)


def gated_scores(records: Sequence[Record], seeks: Seeks) -> Floats:
    """Return the score of the answer to each record under the gate's decisions, shape (n,)."""
    without, with_ = scores_both_ways(records)
    return np.where(seeks, with_, without)


# Cost against accuracy: what comes out where the questions of the lowest scores seek knowledge (Thrust, section 4).


class CurvePoint(NamedTuple):
    """`share` of the questions seek, those with a score below `threshold`; `accuracy` is that of all questions."""

    share: float
    accuracy: float
    threshold: float


def cost_curve(records: Sequence[Record], scores: Floats) -> list[CurvePoint]:
    """Return the points from never (share 0) to always (share 1), one between any two scores; equal scores go together.

    The first threshold is -inf and the last inf; between two points, sampler at random gives the straight line.
    """
    without, with_ = scores_both_ways(records)
    order = np.argsort(scores, kind="stable")
    ordered = np.asarray(scores, dtype=np.float64)[order]
    gains = np.concatenate([[0.0], np.cumsum((with_ - without)[order])])
    ends = [i for i in range(1, len(ordered)) if ordered[i] > ordered[i - 1]]
    inner = [((ordered[i - 1] + ordered[i]) / 2, i) for i in ends]
    places = [(-np.inf, 0), *inner, (np.inf, len(ordered))]
    start, n = without.sum(), len(ordered)
    return [CurvePoint(i / n, float(start + gains[i]) / n, float(threshold)) for threshold, i in places]


def best_within_budget(points: Sequence[CurvePoint], budget: float = 1.0) -> CurvePoint:
    """Return the point of the highest accuracy that lets at most `budget` of the questions seek; of equals, the
    fewest."""
    affordable = [point for point in points if point.share <= budget + 1e-12]
    return max(affordable, key=lambda point: (round(point.accuracy, 12), -point.share))


# How well a gate's scores rank the questions, and how far its probabilities can be believed.

SHARES = (0.5, 0.7, 0.85)
BINS = 10


@dataclass(frozen=True)
class GateRanking:
    """Of a gate's scores, whatever its threshold.

    accuracy_at  accuracy where that share of the questions uses cards, those with the lowest scores
    ece          calibration error of its P(right without cards); None where the gate gives no such probability
    """

    accuracy_at: Mapping[float, float]
    ece: float | None = None

    @classmethod
    def of(
        cls, records: Sequence[Record], scores: Floats, correct_without: Floats | None = None
    ) -> "GateRanking":
        """Measure scores. `scores`, `correct_without`: shape (n,). Among equal scores questions are drawn at random."""
        points = cost_curve(records, scores)
        shares, accuracies = [p.share for p in points], [p.accuracy for p in points]
        at = {share: float(np.interp(share, shares, accuracies)) for share in SHARES}
        if correct_without is None:
            return cls(at)
        return cls(at, calibration_error(correct_without, scores_both_ways(records)[0]))

    def to_json(self) -> dict[str, Any]:
        at = {
            f"accuracy_at_{share:.0%}".rstrip("%"): round(v, DIGITS) for share, v in self.accuracy_at.items()
        }
        return {**at, "ece": None if self.ece is None else round(self.ece, DIGITS)}


def calibration_error(probabilities: Floats, truth: Floats, bins: int = BINS) -> float:
    """Return the expected calibration error, in [0, 1] (Guo et al., 2017, equation 3).

    The mean, over bins of equal width and weighted by their sizes, of how far the mean probability lies from the mean
    of the truth. Both of shape (n,), n at least 1, values in [0, 1].
    """
    bin_ = np.minimum((probabilities * bins).astype(int), bins - 1)
    apart = np.bincount(bin_, weights=probabilities - truth, minlength=bins)
    return float(np.abs(apart).sum() / len(truth))
