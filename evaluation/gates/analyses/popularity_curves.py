"""Accuracy by how popular a question's subject is, and how closely the two go together in each relation (Adaptive
Retrieval, sections 4 and 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.analysis import GateAnalysis, Given
from kcard.evaluation.gates.analyses.chart import Chart, Series
from kcard.evaluation.gates.outcome import Floats, both_ways
from kcard.evaluation.intervals import bootstrap_interval, interval
from kcard.gates.record import Record

__all__ = ["analyse", "correlation", "log_popularity"]

NAME = "popularity-curves"
FEWEST = 3  # questions of which a correlation is more than chance


@dataclass(frozen=True)
class Settings:
    """`bins`: points of the curve, each of equally many questions."""

    bins: int = 10

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise ValueError(f"bins is {self.bins}, expected a whole number of at least 1")


def analyse(given: Given) -> GateAnalysis:
    """The table has a row a relation: Pearson's correlation of log popularity with accuracy, without and with cards.

    Raises UsageError for a record without popularity.
    """
    settings, records = given.typed(Settings), given.records
    logs = log_popularity(records)
    relations = sorted({record.relation or "" for record in records})
    rows = [_row("all", records, logs)]
    if len(relations) > 1:
        for relation in relations:
            held = [i for i, record in enumerate(records) if (record.relation or "") == relation]
            rows.append(_row(relation or "none", [records[i] for i in held], logs[held]))
    return GateAnalysis(NAME, len(records), tuple(rows), _curves(records, logs, settings.bins))


def log_popularity(records: Sequence[Record]) -> Floats:
    """ln(1 + popularity) of each, shape (n,). Raises UsageError for a record without popularity."""
    found = []
    for record in records:
        if record.popularity is None:
            raise UsageError(
                f"the popularity of the subject of {record.question[:60]!r} is unknown: collect records on a task that "
                "has it, such as popqa"
            )
        found.append(record.popularity)
    return np.log1p(np.array(found, dtype=np.float64))


def correlation(first: Floats, second: Floats) -> float:
    """Pearson's; nan where one of them does not vary, or for fewer than three values."""
    if len(first) < FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _row(relation: str, records: Sequence[Record], logs: Floats) -> Mapping[str, Any]:
    without, with_ = both_ways(records)
    low, high = _correlation_interval(logs, without)
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


def _correlation_interval(logs: Floats, right: Floats) -> tuple[float, float]:
    """Percentile bootstrap; samples in which nothing varies count as no correlation."""
    if np.isnan(correlation(logs, right)):
        return float("nan"), float("nan")
    return bootstrap_interval(lambda x, y: np.nan_to_num(correlation(x, y)), logs, right)


def _curves(records: Sequence[Record], logs: Floats, bins: int) -> Chart:
    parts = [part for part in np.array_split(np.argsort(logs, kind="stable"), bins) if len(part)]
    middles = tuple(float(np.expm1(logs[part].mean())) + 1 for part in parts)
    series = []
    for label, right in zip(("without cards", "with cards"), both_ways(records), strict=True):
        bounds = [interval(right[part].tolist()) for part in parts]
        lows, highs = zip(*bounds, strict=True)
        series.append(Series(label, middles, tuple(float(right[part].mean()) for part in parts), lows, highs))
    return Chart("popularity of the subject", "accuracy", tuple(series), log=True)
