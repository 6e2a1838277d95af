"""The popularity gate judged as Adaptive Retrieval judges it (appendix B): thresholds by relation are chosen on three
quarters of the records, the rest is answered by them, and that a hundred times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.analysis import GateAnalysis, Given
from kcard.evaluation.gates.analyses.chart import Chart, Series
from kcard.evaluation.gates.analyses.popularity_curves import log_popularity
from kcard.evaluation.gates.folds import Indices
from kcard.evaluation.gates.outcome import Floats, Seeks, both_ways
from kcard.gates.best_threshold import BOUND, best_threshold
from kcard.gates.record import Record

__all__ = ["analyse"]

NAME = "popularity-splits"
COSTS = ("seconds", "tokens", "calls")


@dataclass(frozen=True)
class Settings:
    """`share` of the records choose the thresholds in each of so many `splits`; `seed` draws them."""

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
    records: Sequence[Record]
    logs: Floats
    without: Floats
    with_: Floats

    @property
    def relations(self) -> list[str]:
        return [record.relation or "" for record in self.records]


def analyse(given: Given) -> GateAnalysis:
    """The table has a row a setting: the mean over the splits, and the middle 95 % of them.

    Seconds, tokens and calls a question are those that the records carry as scores ("seconds_without", ...). Raises
    UsageError for a record without popularity, and for too few records to split.
    """
    settings, records = given.typed(Settings), given.records
    data = _Data(records, log_popularity(records), *both_ways(records))
    cut = round(settings.share * len(records))
    if not 0 < cut < len(records):
        raise UsageError(f"{len(records)} records can't be split by {settings.share:g}: give more records")
    random = np.random.default_rng(settings.seed)
    found: dict[str, list[Mapping[str, float]]] = {"never": [], "adaptive": [], "always": [], "oracle": []}
    for number in range(settings.splits):
        order = random.permutation(len(records))
        for name, seeks in _decisions(data, order[:cut], order[cut:]).items():
            found[name].append(_figures(data, order[cut:], seeks))
        given.report(number + 1, settings.splits)
    rows = tuple(_row(name, splits) for name, splits in found.items())
    return GateAnalysis(NAME, len(records), rows, _chart(rows), _summary(data, found))


def _thresholds(data: _Data, rows: Indices) -> dict[str, float]:
    """The best threshold of each relation in these records, on the scale of ln(1 + popularity)."""
    relations = np.array(data.relations)[rows]
    held = {relation: rows[relations == relation] for relation in np.unique(relations)}
    return {
        str(relation): best_threshold(data.logs[own], data.without[own], data.with_[own])
        for relation, own in held.items()
    }


def _decisions(data: _Data, fitted: Indices, rest: Indices) -> dict[str, Seeks]:
    """Which questions of the rest seek. A relation that was not seen takes the threshold over all records."""
    thresholds = _thresholds(data, fitted)
    pooled = best_threshold(data.logs[fitted], data.without[fitted], data.with_[fitted])
    limits = np.array([thresholds.get(data.relations[row], pooled) for row in rest.tolist()])
    return {
        "never": np.zeros(len(rest), dtype=np.bool_),
        "adaptive": np.asarray(data.logs[rest] < limits),
        "always": np.ones(len(rest), dtype=np.bool_),
        "oracle": np.asarray(data.with_[rest] > data.without[rest]),
    }


def _figures(data: _Data, rows: Indices, seeks: Seeks) -> dict[str, float]:
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


def _row(name: str, splits: Sequence[Mapping[str, float]]) -> Mapping[str, Any]:
    accuracies = [split["accuracy"] for split in splits]
    low, high = np.quantile(accuracies, [0.025, 0.975])
    costs = {
        cost: float(np.mean([split[cost] for split in splits])) if cost in splits[0] else None
        for cost in COSTS
    }
    return {
        "setting": name,
        "accuracy": float(np.mean(accuracies)),
        "low": float(low),
        "high": float(high),
        "share": float(np.mean([split["share"] for split in splits])),
        **costs,
    }


def _summary(data: _Data, found: Mapping[str, Sequence[Mapping[str, float]]]) -> Mapping[str, Any]:
    """The gain over the better of never and always; what is saved against always; each relation's threshold."""
    mean = {name: float(np.mean([split["accuracy"] for split in splits])) for name, splits in found.items()}
    better = max(("never", "always"), key=lambda name: mean[name])
    gains = [a["accuracy"] - b["accuracy"] for a, b in zip(found["adaptive"], found[better], strict=True)]
    low, high = np.quantile(gains, [0.025, 0.975])
    saved = {
        f"{cost}_saved": 1 - _total(found["adaptive"], cost) / _total(found["always"], cost)
        for cost in COSTS
        if cost in found["always"][0] and _total(found["always"], cost)
    }
    thresholds = _thresholds(data, np.arange(len(data.records)))
    return {
        "better_of_never_and_always": better,
        "gain": float(np.mean(gains)),
        "gain_low": float(low),
        "gain_high": float(high),
        **saved,
        "thresholds": {relation or "none": _popularity(limit) for relation, limit in thresholds.items()},
    }


def _total(splits: Sequence[Mapping[str, float]], cost: str) -> float:
    return sum(split[cost] for split in splits)


def _popularity(limit: float) -> float | str:
    return {-BOUND: "never", BOUND: "always"}.get(limit, float(np.expm1(min(limit, 700.0))))


def _chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    columns = ([row[key] for row in rows] for key in ("setting", "accuracy", "low", "high"))
    names, *figures = map(tuple, columns)
    return Chart("", "accuracy", (Series("held-out questions", names, *figures),), kind="bar")
