"""Analyses of Thrust."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kcard.evaluation.gates.analyses.analysis import AnalysisInputs, GateAnalysis
from kcard.evaluation.gates.calibration import cache_embeddings, cross_validate
from kcard.evaluation.gates.outcome import FOLDS, Floats, Seeks, cost_curve, scores_both_ways, split_folds
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
        quantiles = {f"p{q * 100:.0f}": float(np.quantile(scores[task], q)) for q in QUANTILES}
        accuracy = {"accuracy": float(right.mean()), "auc": auc(scores[task], right)}
        rows.append({"task": task, "n": len(scores[task]), **quantiles, **accuracy})
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
MOST_KNOWLEDGE = 0.9  # the paper's table 3 compares the best figure below this share with knowledge for all


@dataclass(frozen=True)
class _Ranking:
    """A gate's scores of a task's records, shape (n,); questions with low scores are sent to cards first."""

    task: str
    gate: str
    records: Sequence[Record]
    scores: Floats

    def seeks(self, share: float) -> Seeks:
        """Return whether each question is in the share with the lowest scores; of equal scores, the first ones."""
        decisions = np.zeros(len(self.scores), dtype=np.bool_)
        decisions[np.argsort(self.scores, kind="stable")[: round(share * len(decisions))]] = True
        return decisions


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
    ranked = []
    for task, records in inputs.tasks.items():
        cut = split_folds(records, min(FOLDS, len(records)))
        for gate in GATES:
            settings = inputs.settings if gate == "thrust" else {}
            scores = cross_validate(records, base.find(gate), settings, using, cut).scores
            ranked.append(_Ranking(task, gate, records, scores))
            inputs.on_event(Event("steps", done=len(ranked), total=len(inputs.tasks) * len(GATES)))
    # A row for each share, with p corrected for all rows.
    pairs = [(one, share) for one in ranked for share in SHARES]
    adjusted = holm([sign_flip(_gains(one, share)) for one, share in pairs])
    rows = []
    for (one, share), p in zip(pairs, adjusted, strict=True):
        without, with_ = scores_both_ways(one.records)
        gains = _gains(one, share)
        low, high = interval(gains.tolist(), paired=True)
        # Mean F1, if the records have it.
        f1 = None
        ways = [[record.scores.get(f"f1_{way}") for record in one.records] for way in ("without", "with")]
        if not any(None in way for way in ways):
            f1_without, f1_with = np.array(ways, dtype=np.float64)
            f1 = float(np.where(one.seeks(share), f1_with, f1_without).mean())
        rows.append(
            {
                "task": one.task,
                "gate": one.gate,
                "share": share,
                "accuracy": float(np.where(one.seeks(share), with_, without).mean()),
                "f1": f1,
                "random": float((1 - share) * without.mean() + share * with_.mean()),
                "gain": float(gains.mean()),
                "low": low,
                "high": high,
                "p_holm": p,
                "never": float(without.mean()),
                "always": float(with_.mean()),
            }
        )
    # The curves of both gates, and of random decisions.
    shares = tuple(float(share) for share in np.linspace(0, 1, POINTS))
    series = []
    for_always, best_below = {}, {}
    for one in ranked:
        without, with_ = scores_both_ways(one.records)
        always = float(with_.mean())
        for_always[f"{one.task} {one.gate}"] = min(
            p.share for p in cost_curve(one.records, one.scores) if p.accuracy >= always - 1e-12
        )
        gains = (with_ - without)[np.argsort(one.scores, kind="stable")]
        totals = without.sum() + np.concatenate([[0.0], np.cumsum(gains)])
        count = int(totals[: math.ceil(MOST_KNOWLEDGE * len(gains))].argmax())
        accuracy = float(totals[count]) / len(gains)
        best_below[f"{one.task} {one.gate}"] = {
            "share": count / len(gains),
            "accuracy": accuracy,
            "of_always": accuracy / always if always else None,
        }
        accuracies = tuple(float(np.where(one.seeks(share), with_, without).mean()) for share in shares)
        series.append(PlotSeries(f"{one.task} {one.gate}", shares, accuracies))
        if one.gate == GATES[-1]:
            series.append(PlotSeries(f"{one.task} random", (0.0, 1.0), (float(without.mean()), always)))
    chart = Curves("share of the questions with knowledge", "accuracy", tuple(series))
    return GateAnalysis(
        "thrust-shares",
        len(inputs.records),
        tuple(rows),
        chart,
        {"share_for_always": for_always, "best_below_90": best_below},
    )


def _gains(one: _Ranking, share: float) -> Floats:
    """Return each answer's gain in score over drawing the same share at random, shape (n,)."""
    without, with_ = scores_both_ways(one.records)
    expected: Floats = (1 - share) * without + share * with_
    return np.where(one.seeks(share), with_, without) - expected
