"""How many records a gate needs: fitted on 10, 25, 50 and 100 % of them (SKR, section 5.3), and the share of questions
that it then sends the better way, "beneficial guidance" (section 5.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kcard.errors import UsageError
from kcard.evaluation.gates.analyses.analysis import GateAnalysis, Given
from kcard.evaluation.gates.analyses.chart import Chart, Series
from kcard.evaluation.gates.folds import FOLDS, Indices, folds
from kcard.evaluation.gates.outcome import Floats, GateOutcome, Seeks, outcomes
from kcard.evaluation.gates.trial import embedding_once
from kcard.evaluation.intervals import interval
from kcard.gates import kinds
from kcard.gates.kinds import Resources
from kcard.gates.record import Record

__all__ = ["analyse"]

NAME = "training-sizes"
SIZES = (0.1, 0.25, 0.5, 1.0)
FIGURES = ("accuracy", "share", "beneficial_guidance")


@dataclass(frozen=True)
class Settings:
    """`gates`: kinds of gates, separated by commas; `repeats`: how often folds and samples are drawn; `seed`."""

    gates: str = "skr-knn,skr-classifier"
    repeats: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.repeats < 1:
            raise ValueError(f"repeats is {self.repeats}, expected a whole number of at least 1")


def analyse(given: Given) -> GateAnalysis:
    """The table has a row a gate and size: means over the repeats, each of which judges every record held out once.

    `difference` is the accuracy less that with all records, with the paired bootstrap's interval over the records.
    `fitted` of the `repeats` could be fitted; a gate that needs records of both kinds can't on too few. Raises
    UsageError for an unknown gate.
    """
    settings, records = given.typed(Settings), given.records
    using = embedding_once(given.resources, {})
    rows: list[dict[str, Any]] = []
    gates = [name.strip() for name in settings.gates.split(",")]
    for gate in gates:
        kinds.find(gate)
        whole: Floats | None = None
        for size in sorted(SIZES, reverse=True):
            seeds = range(settings.seed, settings.seed + settings.repeats)
            tried = (_seeks(records, gate, size, using, seed) for seed in seeds)
            found = [seeks for seeks in tried if seeks is not None]
            mean = np.mean([outcomes(records, seeks) for seeks in found], axis=0) if found else None
            whole = mean if size == max(SIZES) else whole
            row = _row(gate, size, len(records), [GateOutcome.of(records, seeks) for seeks in found])
            rows.append(row | _difference(mean, whole))
            given.report(len(rows), len(gates) * len(SIZES))
    rows.sort(key=lambda row: (gates.index(row["gate"]), row["size"]))
    return GateAnalysis(NAME, len(records), tuple(rows), _chart(rows))


def _seeks(records: Sequence[Record], gate: str, size: float, using: Resources, seed: int) -> Seeks | None:
    """Each fold decided by a gate that was fitted on that share of the others; None where one can't be fitted."""
    kind, random = kinds.find(gate), np.random.default_rng(seed)
    seeks = np.zeros(len(records), dtype=np.bool_)
    for held_out in folds(records, min(FOLDS, len(records)), seed):
        sample = _sample(np.setdiff1d(np.arange(len(records)), held_out), size, random)
        try:
            fitted = kind.fit([records[row] for row in sample], {}, using)
        except UsageError:
            return None
        seeks[held_out] = fitted.scores([records[row].query for row in held_out]) < fitted.threshold
    return seeks


def _difference(right: Floats | None, whole: Floats | None) -> dict[str, float | None]:
    if right is None or whole is None:
        return {"difference": None, "low": None, "high": None}
    low, high = interval((right - whole).tolist(), paired=True) if right is not whole else (0.0, 0.0)
    return {"difference": float((right - whole).mean()), "low": low, "high": high}


def _sample(rows: Indices, size: float, random: np.random.Generator) -> list[int]:
    chosen: list[int] = random.permutation(rows)[: max(1, round(size * len(rows)))].tolist()
    return chosen


def _row(gate: str, size: float, count: int, found: Sequence[GateOutcome]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name in FIGURES:
        values = [value for outcome in found if (value := getattr(outcome, name)) is not None]
        figures[name] = float(np.mean(values)) if values else None
        figures[f"{name}_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {
        "gate": gate,
        "size": size,
        "records": round(size * count * (FOLDS - 1) / FOLDS),
        "fitted": len(found),
        **figures,
        "never": found[0].never if found else None,
        "always": found[0].always if found else None,
    }


def _chart(rows: Sequence[Mapping[str, Any]]) -> Chart:
    series = []
    for gate in dict.fromkeys(row["gate"] for row in rows):
        for name in ("accuracy", "beneficial_guidance"):
            own = [row for row in rows if row["gate"] == gate and row[name] is not None]
            label = f"{gate}: {name.replace('_', ' ')}"
            series.append(
                Series(label, tuple(row["records"] for row in own), tuple(row[name] for row in own))
            )
    return Chart("records that the gate is fitted on", "share of the questions", tuple(series))
