"""Outcomes of gates on records: accuracy, share of questions with cards, and ranking."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.evaluation.metrics import exact_match, f1, substring
from kcard.gates.records import Record

# Metrics of an LLM's answer against the accepted ones, by name.

Metric = Literal["substring", "em", "f1", "accuracy"]
WORD = re.compile(r"\w+")


def accuracy(text: str, accepted: Sequence[str]) -> float:
    """Return 1.0 if the reply starts with an accepted label ("B" in "B. Paris", "Yes" in "Yes, since ..."), else 0.0.

    For choices and classes. Unlike in other metrics, articles count: "A" is a label.
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


# Cross-validation folds.

FOLDS = 5
LEAVE_ONE_OUT = "loo"
Indices = npt.NDArray[np.intp]


def split_folds(records: Sequence[Record], count: int | None = FOLDS, seed: int = 0) -> list[Indices]:
    """Return the held-out records of each fold, ascending; every record is held out exactly once.

    count  number of folds; None: one for each record (leave one out)
    seed   of the shuffle that assigns records to folds

    Folds are stratified by whether cards helped and whether both answers were wrong. Raises UsageError for fewer than
    two folds or records.
    """
    if len(records) < 2:
        raise UsageError("a single record can't be split into folds: give at least two records")
    if count is None:
        return [np.array([i]) for i in range(len(records))]
    if not 2 <= count <= len(records):
        raise UsageError(
            f"folds is {count} with {len(records)} records: expected 2 to {len(records)}, or loo"
        )
    shuffled = np.random.default_rng(seed).permutation(len(records))
    kinds = np.array([record.seeks + 2 * record.wrong_both_ways for record in records])[shuffled]
    dealt = shuffled[np.argsort(kinds, kind="stable")]
    return [np.sort(dealt[first::count]) for first in range(count)]


def parse_fold_count(text: str) -> int | None:
    """Parse a number of folds, or loo, which is None. Raises UsageError for anything else."""
    if text == LEAVE_ONE_OUT:
        return None
    if not text.isdecimal():
        raise UsageError(f"folds is {text!r}: expected a number such as {FOLDS}, or {LEAVE_ONE_OUT}")
    return int(text)


Floats = npt.NDArray[np.float64]
Seeks = npt.NDArray[np.bool_]
RANK_DIGITS = 6


@dataclass(frozen=True)
class GateOutcome:
    """The outcome of a gate's decisions: shares and accuracies in [0, 1] over all records.

    accuracy             mean of correct_with for questions that the gate sends to cards, of correct_without for others
    share                share of the questions that the gate sends to cards
    beneficial_guidance  among records whose outcome depends on cards, the share that the gate decides correctly (SKR,
                         section 5); None without such records
    over_asking          share of the questions sent to cards although the answer without them is as good
    under_asking         share of the questions not sent although cards would improve the answer
    never, always        accuracy without cards, and with cards for every question
    oracle               accuracy of the optimal decisions
    random_same_share    expected accuracy if the same share of the questions, drawn at random, is sent to cards
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
        """Measure decisions. `seeks`: shape (n,), whether the gate sends each question to cards."""
        without, with_ = scores_both_ways(records)
        share, never, always = float(seeks.mean()), float(without.mean()), float(with_.mean())
        differs = without != with_
        right = seeks[differs] == (with_ > without)[differs]
        guidance = None
        if right.size:
            guidance = float(right.mean())
        return cls(
            n=len(records),
            accuracy=float(gated_scores(records, seeks).mean()),
            share=share,
            beneficial_guidance=guidance,
            over_asking=float((seeks & (without >= with_)).mean()),
            under_asking=float((~seeks & (without < with_)).mean()),
            never=never,
            always=always,
            oracle=float(np.maximum(without, with_).mean()),
            random_same_share=(1 - share) * never + share * always,
        )

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        for key, value in data.items():
            if isinstance(value, float):
                data[key] = round(value, RANK_DIGITS)
        return data


def scores_both_ways(records: Sequence[Record]) -> tuple[Floats, Floats]:
    """Return the scores of the answers without cards, and with cards; shape (n,) each."""
    without = np.array([record.correct_without for record in records], dtype=np.float64)
    return without, np.array([record.correct_with for record in records], dtype=np.float64)


def named_scores_both_ways(records: Sequence[Record], name: str) -> tuple[Floats, Floats] | None:
    """Return a score of this name, such as `f1` or `seconds`, of the answers without cards and with them.

    Shape (n,) each; None if a record lacks it.
    """
    without, with_ = [], []
    for record in records:
        without.append(record.scores.get(f"{name}_without"))
        with_.append(record.scores.get(f"{name}_with"))
    if None in without or None in with_:
        return None
    return np.array(without, dtype=np.float64), np.array(with_, dtype=np.float64)


def gated_scores(records: Sequence[Record], seeks: Seeks) -> Floats:
    """Return the score of the answer to each record under the gate's decisions, shape (n,)."""
    without, with_ = scores_both_ways(records)
    return np.where(seeks, with_, without)


# Accuracy against cost, if the questions with the lowest scores are sent to cards (Thrust, section 4).


class CurvePoint(NamedTuple):
    """The accuracy over all questions if the `share` with scores below `threshold` is sent to cards."""

    share: float
    accuracy: float
    threshold: float


def cost_curve(records: Sequence[Record], scores: Floats) -> list[CurvePoint]:
    """Return the points from never (share 0) to always (share 1), one between any two distinct scores.

    The first threshold is -inf, the last inf. Between two points, random decisions give the straight line.
    """
    without, with_ = scores_both_ways(records)
    order = np.argsort(scores, kind="stable")
    ordered = np.asarray(scores, dtype=np.float64)[order]
    gains = np.concatenate([[0.0], np.cumsum((with_ - without)[order])])
    # The numbers of questions below each threshold, which lies in the middle between two distinct scores.
    counts = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1
    thresholds = [-np.inf, *((ordered[counts - 1] + ordered[counts]) / 2).tolist(), np.inf]
    start, n = without.sum(), len(ordered)
    points = []
    for threshold, count in zip(thresholds, [0, *counts.tolist(), n], strict=True):
        points.append(CurvePoint(count / n, float(start + gains[count]) / n, threshold))
    return points


def best_within_budget(points: Sequence[CurvePoint], budget: float = 1.0) -> CurvePoint:
    """Return the most accurate point whose share is at most `budget`; among equals, the one with the lowest share."""
    affordable = [point for point in points if point.share <= budget + 1e-12]
    return max(affordable, key=lambda point: (round(point.accuracy, 12), -point.share))


# Ranking of questions by a gate's scores, and calibration of its probabilities.

SHARES = (0.5, 0.7, 0.85)
BINS = 10


@dataclass(frozen=True)
class GateRanking:
    """The quality of a gate's scores, independent of its threshold.

    accuracy_at  by share: the accuracy if that share of the questions, those with the lowest scores, is sent to cards
    ece          expected calibration error of its P(right without cards); None for a gate without probabilities
    """

    accuracy_at: Mapping[float, float]
    ece: float | None = None

    @classmethod
    def of(
        cls, records: Sequence[Record], scores: Floats, correct_without: Floats | None = None
    ) -> "GateRanking":
        """Measure scores. `scores`, `correct_without`: shape (n,). Ties are broken at random, in expectation."""
        points = cost_curve(records, scores)
        shares, accuracies = [p.share for p in points], [p.accuracy for p in points]
        at = {share: float(np.interp(share, shares, accuracies)) for share in SHARES}
        if correct_without is None:
            return cls(at)
        return cls(at, calibration_error(correct_without, scores_both_ways(records)[0]))

    def to_json(self) -> dict[str, Any]:
        data: dict[str, float | None] = {}
        for share, accuracy in self.accuracy_at.items():
            data[f"accuracy_at_{share * 100:.0f}"] = round(accuracy, RANK_DIGITS)
        data["ece"] = None
        if self.ece is not None:
            data["ece"] = round(self.ece, RANK_DIGITS)
        return data


def calibration_error(probabilities: Floats, truth: Floats, bins: int = BINS) -> float:
    """Return the expected calibration error, in [0, 1] (Guo et al., 2017, equation 3).

    The mean over bins of equal width, weighted by their sizes, of the difference between the mean probability and the
    mean of the truth. Both have shape (n,), n at least 1, and values in [0, 1].
    """
    bin_ = np.minimum((probabilities * bins).astype(int), bins - 1)
    gaps = np.bincount(bin_, weights=probabilities - truth, minlength=bins)
    return float(np.abs(gaps).sum() / len(truth))
