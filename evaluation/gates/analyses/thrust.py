"""Analyses of Thrust."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kcard.evaluation.gates.analyses.analysis import AnalysisInputs, GateAnalysis
from kcard.evaluation.gates.calibration import cache_embeddings, cross_validate
from kcard.evaluation.gates.outcome import (
    FOLDS,
    Floats,
    Seeks,
    cost_curve,
    named_scores_both_ways,
    scores_both_ways,
    split_folds,
)
from kcard.evaluation.metrics import holm, interval, sign_flip
from kcard.evaluation.plots import Curves, PlotSeries
from kcard.events import Event
from kcard.gates import base
from kcard.gates.records import Record

# Distribution of Thrust's scores in each task, and how well they predict right answers (Thrust, section 4.1).

BINS = 30
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def analyse_thrust_scores(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row for each task; the settings are those of the gate thrust.

    A record is scored by clusters of the task's other questions (five folds). `auc` is the probability that a question
    answered correctly without cards scores higher than one answered wrongly. Raises UsageError for settings or records
    on which the gate can't be fitted.
    """
    kind, rows, scores = base.find("thrust"), [], {}
    using = cache_embeddings(inputs.resources, inputs.settings)
    for done, (task, records) in enumerate(inputs.tasks.items(), start=1):
        cut = split_folds(records, min(FOLDS, len(records)))
        scores[task] = cross_validate(records, kind, inputs.settings, using, cut).scores
        right = scores_both_ways(records)[0]
        row: dict[str, Any] = {"task": task, "n": len(scores[task])}
        for quantile in QUANTILES:
            row[f"p{quantile * 100:.0f}"] = float(np.quantile(scores[task], quantile))
        rows.append(row | {"accuracy": float(right.mean()), "auc": auc(scores[task], right)})
        inputs.on_event(Event("steps", done=done, total=len(inputs.tasks)))
    # Histograms over the logarithm, since a question at a centroid scores a million times the median.
    logs = {task: np.log10(np.maximum(values, 1e-12)) for task, values in scores.items()}
    low, high = np.quantile(np.concatenate(list(logs.values())), [0.005, 0.995])
    edges = np.linspace(low, max(high, low + 1e-6), BINS + 1)
    middles = tuple(float(10**middle) for middle in (edges[1:] + edges[:-1]) / 2)
    series = []
    for task, values in logs.items():
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        series.append(PlotSeries(task, middles, tuple((counts / len(values)).tolist())))
    chart = Curves("Thrust score", "share of the questions", tuple(series), log=True)
    return GateAnalysis("thrust-scores", len(inputs.records), tuple(rows), chart)


def auc(scores: Floats, right: Floats) -> float:
    """Return the area under the ROC curve of scores for `right` (at least 0.5) against wrong; nan without both."""
    from sklearn.metrics import roc_auc_score

    is_right = right >= 0.5
    if is_right.all() or not is_right.any():
        return float("nan")
    return float(roc_auc_score(is_right, scores))


GATES = ("thrust", "bm25")
SHARES = (0.25, 0.5, 0.75)  # scarce, medium and abundant knowledge
POINTS = 21  # of each curve
MAX_KNOWLEDGE_SHARE = (
    0.9  # the paper's table 3 compares the best figure below this share with knowledge for all
)


@dataclass(frozen=True)
class _Ranking:
    """A gate's scores of a task's records, with the scores of their answers without and with cards; shape (n,) each.

    Questions with low scores are sent to cards first.
    """

    task: str
    gate: str
    records: Sequence[Record]
    scores: Floats
    without: Floats
    with_: Floats

    def seeks(self, share: float) -> Seeks:
        """Return whether each question is in the share with the lowest scores; of equal scores, the first ones."""
        decisions = np.zeros(len(self.scores), dtype=np.bool_)
        decisions[np.argsort(self.scores, kind="stable")[: round(share * len(decisions))]] = True
        return decisions

    def outcomes(self, share: float) -> Floats:
        """Return the score of each answer if that share of the questions is sent to cards."""
        return np.where(self.seeks(share), self.with_, self.without)

    def gains(self, share: float) -> Floats:
        """Return each answer's gain in score over drawing the same share at random."""
        expected: Floats = (1 - share) * self.without + share * self.with_
        return self.outcomes(share) - expected


def analyse_thrust_shares(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row for each task, gate and share: accuracy, F1, and gain over random with its interval.

    The settings are those of the gate thrust. Scores are held out, over five folds. p is of the paired permutation
    test, corrected for all rows (Holm). `share_for_always`: the smallest share at which the gate is as good as cards
    for every question. `best_below_90`: the best accuracy with knowledge for less than 90 % of the questions, chosen on
    these records as in the paper's table 3, and its ratio to that with knowledge for all.

    Raises UsageError for settings or records on which the gates can't be fitted.
    """
    # The held-out scores of both gates on each task.
    using = cache_embeddings(inputs.resources, inputs.settings)
    rankings = []
    for task, records in inputs.tasks.items():
        cut = split_folds(records, min(FOLDS, len(records)))
        for gate in GATES:
            settings: Mapping[str, Any] = {}
            if gate == "thrust":
                settings = inputs.settings
            scores = cross_validate(records, base.find(gate), settings, using, cut).scores
            rankings.append(_Ranking(task, gate, records, scores, *scores_both_ways(records)))
            inputs.on_event(Event("steps", done=len(rankings), total=len(inputs.tasks) * len(GATES)))
    # A row for each share, with p corrected for all rows.
    rows: list[dict[str, Any]] = []
    for ranking in rankings:
        without, with_ = float(ranking.without.mean()), float(ranking.with_.mean())
        f1 = named_scores_both_ways(ranking.records, "f1")
        for share in SHARES:
            gains = ranking.gains(share)
            low, high = interval(gains.tolist(), paired=True)
            mean_f1 = None
            if f1 is not None:
                mean_f1 = float(np.where(ranking.seeks(share), f1[1], f1[0]).mean())
            rows.append(
                {
                    "task": ranking.task,
                    "gate": ranking.gate,
                    "share": share,
                    "accuracy": float(ranking.outcomes(share).mean()),
                    "f1": mean_f1,
                    "random": (1 - share) * without + share * with_,
                    "gain": float(gains.mean()),
                    "low": low,
                    "high": high,
                    "p_holm": sign_flip(gains),
                    "never": without,
                    "always": with_,
                }
            )
    for row, p in zip(rows, holm([row["p_holm"] for row in rows]), strict=True):
        row["p_holm"] = p
    # The curves of both gates, and of random decisions.
    shares = tuple(np.linspace(0, 1, POINTS).tolist())
    series = []
    for_always: dict[str, float] = {}
    best_below: dict[str, dict[str, float | None]] = {}
    for ranking in rankings:
        name = f"{ranking.task} {ranking.gate}"
        without, always = float(ranking.without.mean()), float(ranking.with_.mean())
        curve = cost_curve(ranking.records, ranking.scores)
        for_always[name] = min(point.share for point in curve if point.accuracy >= always - 1e-12)
        # Of equal scores, the first questions are sent first, so each number of questions is a point.
        gains = (ranking.with_ - ranking.without)[np.argsort(ranking.scores, kind="stable")]
        totals = ranking.without.sum() + np.concatenate([[0.0], np.cumsum(gains)])
        count = int(totals[: math.ceil(MAX_KNOWLEDGE_SHARE * len(gains))].argmax())
        accuracy = float(totals[count]) / len(gains)
        best_below[name] = {"share": count / len(gains), "accuracy": accuracy, "of_always": None}
        if always:
            best_below[name]["of_always"] = accuracy / always
        accuracies = [float(ranking.outcomes(share).mean()) for share in shares]
        series.append(PlotSeries(name, shares, tuple(accuracies)))
        if ranking.gate == GATES[-1]:
            series.append(PlotSeries(f"{ranking.task} random", (0.0, 1.0), (without, always)))
    chart = Curves("share of the questions with knowledge", "accuracy", tuple(series))
    summary = {"share_for_always": for_always, "best_below_90": best_below}
    return GateAnalysis("thrust-shares", len(inputs.records), tuple(rows), chart, summary)
