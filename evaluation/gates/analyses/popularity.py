"""Analyses of the popularity gate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.analysis import AnalysisInputs, GateAnalysis
from kcard.evaluation.gates.outcome import Floats, Indices, Seeks, scores_both_ways
from kcard.evaluation.metrics import bootstrap_interval, interval
from kcard.evaluation.plots import Curves, PlotSeries
from kcard.events import Event
from kcard.gates.popularity import BOUND, best_threshold
from kcard.gates.records import Record

# Accuracy by the popularity of a question's subject, and their correlation in each relation (Adaptive Retrieval,
# sections 4 and 5).

FEWEST = 3  # questions; a correlation of fewer is meaningless


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
    settings, records = inputs.typed(PopularityCurvesSettings), inputs.records
    logs = log_popularity(records)
    relations = sorted({record.relation or "" for record in records})
    rows = [_popularity_curves_row("all", records, logs)]
    if len(relations) > 1:
        for relation in relations:
            members = [i for i, record in enumerate(records) if (record.relation or "") == relation]
            rows.append(
                _popularity_curves_row(relation or "none", [records[i] for i in members], logs[members])
            )
    # The curves of accuracy over bins of popularity.
    parts = [part for part in np.array_split(np.argsort(logs, kind="stable"), settings.bins) if len(part)]
    middles = tuple(float(np.expm1(logs[part].mean())) + 1 for part in parts)
    series = []
    for label, right in zip(("without cards", "with cards"), scores_both_ways(records), strict=True):
        bounds = [interval(right[part].tolist()) for part in parts]
        lows, highs = zip(*bounds, strict=True)
        series.append(
            PlotSeries(label, middles, tuple(float(right[part].mean()) for part in parts), lows, highs)
        )
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
    if len(first) < FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
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


@dataclass(frozen=True)
class _Data:
    """Records with their log popularity and their scores without and with cards, shape (n,) each."""

    records: Sequence[Record]
    logs: Floats
    without: Floats
    with_: Floats

    @property
    def relations(self) -> list[str]:
        return [record.relation or "" for record in self.records]


def analyse_popularity_splits(inputs: AnalysisInputs) -> GateAnalysis:
    """Return a table with a row for each setting: the mean over the splits, and their central 95 %.

    Seconds, tokens and calls per question come from the records' scores ("seconds_without", ...). Raises UsageError for
    a record without popularity, and for too few records.
    """
    settings, records = inputs.typed(PopularitySplitsSettings), inputs.records
    data = _Data(records, log_popularity(records), *scores_both_ways(records))
    cut = round(settings.share * len(records))
    if not 0 < cut < len(records):
        raise UsageError(f"{len(records)} records can't be split by {settings.share:g}: give more records")
    random = np.random.default_rng(settings.seed)
    by_setting: dict[str, list[Mapping[str, float]]] = {
        "never": [],
        "adaptive": [],
        "always": [],
        "oracle": [],
    }
    for number in range(settings.splits):
        order = random.permutation(len(records))
        fitted, rest = order[:cut], order[cut:]
        # Decide the other questions. For a relation without a threshold, the threshold over all relations counts.
        thresholds = _thresholds(data, fitted)
        pooled = best_threshold(data.logs[fitted], data.without[fitted], data.with_[fitted])
        limits = np.array([thresholds.get(data.relations[row], pooled) for row in rest.tolist()])
        decided: dict[str, Seeks] = {
            "never": np.zeros(len(rest), dtype=np.bool_),
            "adaptive": np.asarray(data.logs[rest] < limits),
            "always": np.ones(len(rest), dtype=np.bool_),
            "oracle": np.asarray(data.with_[rest] > data.without[rest]),
        }
        for name, seeks in decided.items():
            by_setting[name].append(_split_figures(data, rest, seeks))
        inputs.on_event(Event("steps", done=number + 1, total=settings.splits))
    # A row for each setting, over all splits.
    rows: list[Mapping[str, Any]] = []
    for name, splits in by_setting.items():
        accuracies = [split["accuracy"] for split in splits]
        low, high = np.quantile(accuracies, [0.025, 0.975])
        costs = {
            cost: float(np.mean([split[cost] for split in splits])) if cost in splits[0] else None
            for cost in COSTS
        }
        rows.append(
            {
                "setting": name,
                "accuracy": float(np.mean(accuracies)),
                "low": float(low),
                "high": float(high),
                "share": float(np.mean([split["share"] for split in splits])),
                **costs,
            }
        )
    columns = ([row[key] for row in rows] for key in ("setting", "accuracy", "low", "high"))
    names, *figures = map(tuple, columns)
    chart = Curves("", "accuracy", (PlotSeries("held-out questions", names, *figures),), kind="bar")
    return GateAnalysis("popularity-splits", len(records), tuple(rows), chart, _summary(data, by_setting))


def _thresholds(data: _Data, rows: Indices) -> dict[str, float]:
    """Return the best threshold of each relation in these records, on the scale of ln(1 + popularity)."""
    relations = np.array(data.relations)[rows]
    by_relation = {relation: rows[relations == relation] for relation in np.unique(relations)}
    return {
        str(relation): best_threshold(data.logs[own], data.without[own], data.with_[own])
        for relation, own in by_relation.items()
    }


def _split_figures(data: _Data, rows: Indices, seeks: Seeks) -> dict[str, float]:
    figures = {
        "accuracy": float(np.where(seeks, data.with_[rows], data.without[rows]).mean()),
        "share": float(seeks.mean()),
    }
    records = [data.records[row] for row in rows.tolist()]
    for cost in COSTS:
        without, with_ = (
            [record.scores.get(f"{cost}_{way}") for record in records] for way in ("without", "with")
        )
        if None not in without and None not in with_:
            spent = np.where(seeks, np.array(with_, dtype=np.float64), np.array(without, dtype=np.float64))
            figures[cost] = float(spent.mean())
    return figures


def _summary(data: _Data, by_setting: Mapping[str, Sequence[Mapping[str, float]]]) -> Mapping[str, Any]:
    """Return the gain over the better of never and always, the costs saved against always, and the thresholds."""
    mean = {
        name: float(np.mean([split["accuracy"] for split in splits])) for name, splits in by_setting.items()
    }
    better = max(("never", "always"), key=lambda name: mean[name])
    gains = [
        a["accuracy"] - b["accuracy"] for a, b in zip(by_setting["adaptive"], by_setting[better], strict=True)
    ]
    low, high = np.quantile(gains, [0.025, 0.975])
    saved = {
        f"{cost}_saved": 1 - _total(by_setting["adaptive"], cost) / _total(by_setting["always"], cost)
        for cost in COSTS
        if cost in by_setting["always"][0] and _total(by_setting["always"], cost)
    }
    thresholds = _thresholds(data, np.arange(len(data.records)))
    return {
        "better_of_never_and_always": better,
        "gain": float(np.mean(gains)),
        "gain_low": float(low),
        "gain_high": float(high),
        **saved,
        "thresholds": {
            relation or "none": {-BOUND: "never", BOUND: "always"}.get(
                limit, float(np.expm1(min(limit, 700.0)))
            )
            for relation, limit in thresholds.items()
        },
    }


def _total(splits: Sequence[Mapping[str, float]], cost: str) -> float:
    return sum(split[cost] for split in splits)
