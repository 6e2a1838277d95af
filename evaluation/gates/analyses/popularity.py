"""Analyses of the popularity gate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.analysis import AnalysisInputs, GateAnalysis, bar_chart
from kcard.evaluation.gates.outcome import Floats, Indices, Seeks, named_scores_both_ways, scores_both_ways
from kcard.evaluation.metrics import bootstrap_interval, interval
from kcard.evaluation.plots import Curves, PlotSeries
from kcard.events import Event
from kcard.gates.base import parse_settings
from kcard.gates.popularity import BOUND, best_threshold
from kcard.gates.records import Record

# Accuracy by the popularity of a question's subject, and their correlation in each relation (Adaptive Retrieval,
# sections 4 and 5).

MIN_CORRELATED_QUESTIONS = 3  # a correlation of fewer is meaningless


@dataclass(frozen=True)
class PopularityCurvesSettings:
    """`bins`: number of points of the curve, each over equally many questions."""

    bins: int = 10

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise ValueError(f"bins is {self.bins}, expected a whole number of at least 1")


def analyse_popularity_curves(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row for each relation: Pearson's correlation of log popularity with accuracy, both ways.

    Raises UsageError for a record without popularity.
    """
    # A row for all records and, if there are several relations, for each.
    settings = parse_settings(PopularityCurvesSettings, inputs.settings, "popularity-curves", "analysis")
    records = inputs.records
    logs = log_popularity(records)
    members: dict[str, list[int]] = {}
    for at, record in enumerate(records):
        members.setdefault(record.relation or "", []).append(at)
    rows = [_popularity_curves_row("all", records, logs)]
    if len(members) > 1:
        for relation, places in sorted(members.items()):
            own = [records[at] for at in places]
            rows.append(_popularity_curves_row(relation or "none", own, logs[places]))
    # The curves of accuracy over bins of popularity.
    parts = [part for part in np.array_split(np.argsort(logs, kind="stable"), settings.bins) if len(part)]
    middles = tuple(float(np.expm1(logs[part].mean())) + 1 for part in parts)
    series = []
    for label, right in zip(("without cards", "with cards"), scores_both_ways(records), strict=True):
        means, lows, highs = [], [], []
        for part in parts:
            low, high = interval(right[part].tolist())
            means.append(float(right[part].mean()))
            lows.append(low)
            highs.append(high)
        series.append(PlotSeries(label, middles, tuple(means), tuple(lows), tuple(highs)))
    chart = Curves("popularity of the subject", "accuracy", tuple(series), log=True)
    return GateAnalysis("popularity-curves", len(records), tuple(rows), chart)


def log_popularity(records: Sequence[Record]) -> Floats:
    """Return ln(1 + popularity) of each record, shape (n,). Raises UsageError for a record without popularity."""
    popularities = []
    for record in records:
        if record.popularity is None:
            raise UsageError(
                f"the record of {record.question[:60]!r} has no popularity: collect records on a task that has it, "
                "such as popqa"
            )
        popularities.append(record.popularity)
    return np.log1p(np.array(popularities, dtype=np.float64))


def correlation(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation; nan if either is constant, or for fewer than three values."""
    if len(first) < MIN_CORRELATED_QUESTIONS or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _popularity_curves_row(relation: str, records: Sequence[Record], logs: Floats) -> Mapping[str, Any]:
    without, with_ = scores_both_ways(records)
    # Percentile bootstrap; the correlation of a constant sample counts as 0.
    low, high = float("nan"), float("nan")
    if not np.isnan(correlation(logs, without)):
        low, high = bootstrap_interval(lambda x, y: np.nan_to_num(correlation(x, y)), logs, without)
    return {
        "relation": relation,
        "n": len(records),
        "popularity": float(np.median(np.expm1(logs))),
        "without": float(without.mean()),
        "with": float(with_.mean()),
        "r_without": correlation(logs, without),
        "r_low": low,
        "r_high": high,
        "r_with": correlation(logs, with_),
    }


COSTS = ("seconds", "tokens", "calls")
CENTRAL_95 = (0.025, 0.975)
MAX_LOG = 700.0  # beyond which the exponential is infinite


@dataclass(frozen=True)
class PopularitySplitsSettings:
    """`splits`: number of random splits; `share`: of the records that choose the thresholds; `seed`: of the splits."""

    splits: int = 100
    share: float = 0.75
    seed: int = 0

    def __post_init__(self) -> None:
        if self.splits < 1 or not 0 < self.share < 1:
            raise ValueError(
                f"splits is {self.splits} and share is {self.share:g}, expected 1 or more splits and a share "
                "between 0 and 1"
            )


def analyse_popularity_splits(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row for each setting: the mean over the splits, and their central 95 %.

    Seconds, tokens and calls per question come from the records' scores ("seconds_without", ...). The summary has the
    gain over the better of never and always, the costs saved against always, and the thresholds. Raises UsageError for
    a record without popularity, and for too few records.
    """
    settings = parse_settings(PopularitySplitsSettings, inputs.settings, "popularity-splits", "analysis")
    records, logs = inputs.records, log_popularity(inputs.records)
    without, with_ = scores_both_ways(records)
    relations = np.array([record.relation or "" for record in records])
    # What is measured of each question, without and with cards: its score and its costs, if all records have them.
    measures = {"accuracy": (without, with_)}
    for cost in COSTS:
        costs = named_scores_both_ways(records, cost)
        if costs is not None:
            measures[cost] = costs

    def thresholds_of(rows: Indices) -> dict[str, float]:
        """Return the best threshold of each relation in these records, on the scale of ln(1 + popularity)."""
        thresholds = {}
        for relation in np.unique(relations[rows]):
            own = rows[relations[rows] == relation]
            thresholds[str(relation)] = best_threshold(logs[own], without[own], with_[own])
        return thresholds

    cut = round(settings.share * len(records))
    if not 0 < cut < len(records):
        raise UsageError(f"{len(records)} records can't be split by {settings.share:g}: give more records")
    random = np.random.default_rng(settings.seed)
    splits: dict[str, list[dict[str, float]]] = {"never": [], "adaptive": [], "always": [], "oracle": []}
    for number in range(settings.splits):
        order = random.permutation(len(records))
        fitted, rest = order[:cut], order[cut:]
        # Decide the other questions. For a relation without a threshold, the threshold over all relations counts.
        thresholds = thresholds_of(fitted)
        pooled = best_threshold(logs[fitted], without[fitted], with_[fitted])
        limits = np.array([thresholds.get(relation, pooled) for relation in relations[rest].tolist()])
        decisions: dict[str, Seeks] = {
            "never": np.zeros(len(rest), dtype=np.bool_),
            "adaptive": np.asarray(logs[rest] < limits),
            "always": np.ones(len(rest), dtype=np.bool_),
            "oracle": np.asarray(with_[rest] > without[rest]),
        }
        for name, seeks in decisions.items():
            figures = {"share": float(seeks.mean())}
            for measure, (cheap, dear) in measures.items():
                figures[measure] = float(np.where(seeks, dear[rest], cheap[rest]).mean())
            splits[name].append(figures)
        inputs.on_event(Event("steps", done=number + 1, total=settings.splits))

    # A row for each setting, over all splits.
    rows: list[dict[str, Any]] = []
    for name, figures_of_splits in splits.items():
        values = {key: [split[key] for split in figures_of_splits] for key in figures_of_splits[0]}
        means = {key: float(np.mean(column)) for key, column in values.items()}
        low, high = np.quantile(values["accuracy"], CENTRAL_95)
        row: dict[str, Any] = {"setting": name, "accuracy": means["accuracy"]}
        row |= {"low": float(low), "high": float(high), "share": means["share"]}
        for cost in COSTS:
            row[cost] = means.get(cost)
        rows.append(row)
    by_setting = {row["setting"]: row for row in rows}
    better = max(("never", "always"), key=lambda name: float(by_setting[name]["accuracy"]))
    gains = []
    for adaptive, other in zip(splits["adaptive"], splits[better], strict=True):
        gains.append(adaptive["accuracy"] - other["accuracy"])
    low, high = np.quantile(gains, CENTRAL_95)
    summary: dict[str, Any] = {
        "better_of_never_and_always": better,
        "gain": float(np.mean(gains)),
        "gain_low": float(low),
        "gain_high": float(high),
    }
    for cost in COSTS:
        whole = by_setting["always"][cost]
        if whole:
            summary[f"{cost}_saved"] = 1 - by_setting["adaptive"][cost] / whole
    limits_in_words = {-BOUND: "never", BOUND: "always"}
    thresholds_in_words: dict[str, str | float] = {}
    for relation, limit in thresholds_of(np.arange(len(records))).items():
        popularity = float(np.expm1(min(limit, MAX_LOG)))
        thresholds_in_words[relation or "none"] = limits_in_words.get(limit, popularity)
    summary["thresholds"] = thresholds_in_words
    chart = bar_chart("accuracy of held-out questions", rows, "setting", "accuracy")
    return GateAnalysis("popularity-splits", len(records), tuple(rows), chart, summary)
