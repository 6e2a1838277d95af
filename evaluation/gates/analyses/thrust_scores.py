"""How Thrust's scores are distributed in each task, and whether they tell what the LLM knows (Thrust, section 4.1)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from kcard.evaluation.gates.analyses.analysis import GateAnalysis, Given
from kcard.evaluation.gates.analyses.chart import Chart, Series
from kcard.evaluation.gates.folds import FOLDS, folds
from kcard.evaluation.gates.outcome import Floats, both_ways
from kcard.evaluation.gates.trial import embedding_once, tried
from kcard.gates import kinds

__all__ = ["analyse", "auc"]

NAME = "thrust-scores"
BINS = 30
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def analyse(given: Given) -> GateAnalysis:
    """The table has a row a task; the settings are those of the gate thrust.

    A record is scored by clusters of questions of the same task that it is not among (five folds). `auc` is the
    probability that a question answered rightly without cards scores higher than one answered wrongly. Raises
    UsageError for settings and records that the gate can't be fitted with.
    """
    kind, rows, scores = kinds.find("thrust"), [], {}
    using = embedding_once(given.resources, given.settings)
    for done, (task, records) in enumerate(given.tasks.items(), start=1):
        cut = folds(records, min(FOLDS, len(records)))
        scores[task] = tried(records, kind, given.settings, using, cut).scores
        rows.append(_row(task, scores[task], both_ways(records)[0]))
        given.report(done, len(given.tasks))
    return GateAnalysis(NAME, len(given.records), tuple(rows), _chart(scores))


def auc(scores: Floats, right: Floats) -> float:
    """The area under the ROC curve of scores for `right` (at least 0.5) against wrong; nan where all are alike."""
    high, low = scores[right >= 0.5], scores[right < 0.5]
    if not len(high) or not len(low):
        return float("nan")
    order = np.sort(low)
    below = np.searchsorted(order, high, "left") + np.searchsorted(order, high, "right")
    return float(below.mean() / 2 / len(low))


def _row(task: str, scores: Floats, right: Floats) -> Mapping[str, Any]:
    quantiles = {f"p{quantile * 100:.0f}": float(np.quantile(scores, quantile)) for quantile in QUANTILES}
    return {
        "task": task,
        "n": len(scores),
        **quantiles,
        "accuracy": float(right.mean()),
        "auc": auc(scores, right),
    }


def _chart(scores: Mapping[str, Floats]) -> Chart:
    """Densities over the logarithm, since a question that sits on a centroid scores a million times the median."""
    logs = {task: np.log10(np.maximum(found, 1e-12)) for task, found in scores.items()}
    everything = np.concatenate(list(logs.values()))
    low, high = np.quantile(everything, [0.005, 0.995])
    edges = np.linspace(low, max(high, low + 1e-6), BINS + 1)
    middles = tuple(float(10**middle) for middle in (edges[1:] + edges[:-1]) / 2)
    series = []
    for task, found in logs.items():
        counts, _ = np.histogram(np.clip(found, edges[0], edges[-1]), edges)
        series.append(Series(task, middles, tuple((counts / len(found)).tolist())))
    return Chart("Thrust score", "share of the questions", tuple(series), log=True)
