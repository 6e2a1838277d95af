"""What a calibration comes to: which gate to use, in words, and as a gate that is ready to be used."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kcard.evaluation.gates.calibration import Calibration, ComparedGate, GateCandidate
from kcard.evaluation.gates.cost_curve import curve
from kcard.evaluation.gates.folds import folds
from kcard.evaluation.gates.outcome import Floats
from kcard.gates.calibrated import Calibrated
from kcard.gates.kinds import Fitted
from kcard.gates.record import Record

__all__ = ["Recommendation", "choose", "deployed"]

LEVEL = 0.05
MARGIN = 0.01  # as good as the reference: so much accuracy may be lost, at most
SAVING = 0.1  # share of the questions from which on a cheaper gate is worth a word


@dataclass(frozen=True)
class Recommendation:
    """`gate`: the row that is to be used; None where none is worth it. `text`: the sentence for the user."""

    gate: ComparedGate | None
    text: str


def choose(found: Calibration) -> Recommendation:
    """The most accurate gate that beats the reference, minding how many were compared; none where none does.

    A gate beats it where it is more accurate and its p, by Holm's rule for all that were compared, is below 0.05. One
    that can't be asked with a question's text alone is named, not chosen.
    """
    beating = [row for row in found.rows if row.difference > 0 and row.p_holm < LEVEL]
    beating.sort(key=lambda row: (-row.outcome.accuracy, row.outcome.share))
    usable = next((row for row in beating if not row.obstacle), None)
    text = _none(found) if not beating else "" if usable is None else _told(usable, found)
    if beating and beating[0].obstacle:
        first = f"best is {_figures(beating[0], found)}, but it can't be used yet: {beating[0].obstacle}"
        text = f"{first}; {text}" if text else first
    return Recommendation(usable, text)


def _told(row: ComparedGate, found: Calibration) -> str:
    return f"use {_figures(row, found)}"


def _figures(row: ComparedGate, found: Calibration) -> str:
    return (
        f"{row.gate}: {row.outcome.accuracy:.3f} right with cards for {row.outcome.share:.0%} of the questions, "
        f"{row.difference:+.3f} [{row.difference_low:+.3f}, {row.difference_high:+.3f}] over {found.reference.name} "
        f"(p = {row.p_holm:.2g} for all {len(found.rows)} gates)"
    )


def _none(found: Calibration) -> str:
    best = found.reference
    text = f"no gate beats {best.name} here: use {best.name} ({best.accuracy:.3f} right)"
    as_good = (row for row in found.rows if row.difference_low >= -MARGIN and not row.obstacle)
    cheaper = [row for row in as_good if row.outcome.share <= best.share - SAVING]
    if not cheaper:
        return text
    row = min(cheaper, key=lambda row: row.outcome.share)
    gain = f"{row.difference:+.3f} [{row.difference_low:+.3f}, {row.difference_high:+.3f}]"
    return f"{text}; {row.gate} is as good ({gain}) and uses cards for only {row.outcome.share:.0%} of the questions"


def deployed(
    records: Sequence[Record], candidate: GateCandidate, row: ComparedGate, found: Calibration
) -> Fitted:
    """The gate of that row, fitted on all records, with the threshold that the comparison chose.

    The scale of scores may grow with the records (Thrust's does), and the comparison fitted on fewer: so the threshold
    is the one below which as many records score as did below the chosen one, in the first fold's gate.
    """
    fitted = candidate.kind.fit(records, candidate.settings, candidate.resources)
    held_out = set(folds(records, found.folds, found.seed)[0].tolist())
    common = [record for i, record in enumerate(records) if i not in held_out]
    queries = [record.query for record in common]
    before = np.asarray(row.trial.fits[0].scores(queries), dtype=np.float64)
    after = np.asarray(fitted.scores(queries), dtype=np.float64)
    share = float((before < row.threshold).mean())
    return Calibrated(fitted, _finite(after, _nearest(common, after, share)))


def _nearest(records: Sequence[Record], scores: Floats, share: float) -> float:
    """The threshold below which nearest to that share of the scores lie."""
    return min(curve(records, scores), key=lambda point: abs(point.share - share)).threshold


def _finite(scores: Floats, threshold: float) -> float:
    """The threshold as a number that a file can hold: one beyond all scores for an infinite one."""
    return float(np.clip(threshold, scores.min() - 1, scores.max() + 1))
