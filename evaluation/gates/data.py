"""A calibration as JSON-ready data."""

import math
from typing import Any

from kcard.evaluation.gates.calibration import Calibration, ComparedGate

__all__ = ["as_data"]

DIGITS = 6


def as_data(found: Calibration) -> dict[str, Any]:
    """All figures; the curve as [share, accuracy] pairs; an infinite threshold (never, always) as null."""
    best = found.reference
    return {
        "n": found.records,
        "folds": found.folds,
        "seed": found.seed,
        "budget": found.budget,
        **{key: _rounded(getattr(found.baselines, key)) for key in ("never", "always", "oracle")},
        "reference": {"name": best.name, "accuracy": _rounded(best.accuracy), "share": best.share},
        "gates": [_gate(row) for row in found.rows],
        "skipped": [{"gate": gate, "why": why} for gate, why in found.skipped],
    }


def _gate(row: ComparedGate) -> dict[str, Any]:
    outcome = row.outcome.to_json()
    return {
        "gate": row.gate,
        **{key: outcome[key] for key in ("accuracy", "share", "beneficial_guidance", "random_same_share")},
        "interval": [_rounded(row.low), _rounded(row.high)],
        "difference": _rounded(row.difference),
        "difference_interval": [_rounded(row.difference_low), _rounded(row.difference_high)],
        "p": _rounded(row.p),
        "p_holm": _rounded(row.p_holm),
        "threshold": _rounded(row.threshold) if math.isfinite(row.threshold) else None,
        "curve": [[_rounded(point.share), _rounded(point.accuracy)] for point in row.curve],
        **({"obstacle": row.obstacle} if row.obstacle else {}),
    }


def _rounded(value: float) -> float:
    return round(value, DIGITS)
