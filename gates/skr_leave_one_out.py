"""SKR's nearest neighbours, each record left out in turn, without fitting as many gates as there are records.

The nearest records are sought once. To leave one out is to strike it from the lists of the others; what is tuned is
tuned on those lists, so every figure is that of a gate which was fitted without the record.
"""

from collections.abc import Sequence

import numpy as np

from kcard.gates.kinds import LeftOut, Resources
from kcard.gates.record import Record
from kcard.gates.representation import find, finite
from kcard.gates.skr import Bools, sorted_out
from kcard.gates.skr_knn import KIND, TRIED, Settings, nearest, unit
from kcard.protocols import Array

__all__ = ["leave_one_out"]


def leave_one_out(records: Sequence[Record], given: Settings, resources: Resources) -> LeftOut | None:
    """The score, threshold and k of each record by a gate that was fitted on the others.

    None where the records are too few for it: to leave one out might empty D+ or D-, or leave fewer than k.
    """
    held, known = sorted_out(records, KIND)
    count, positive = len(held), int(known.sum())
    if positive < 2 or count - positive < 2 or (given.k or 0) >= count or count <= TRIED[-1] + 1:
        return None
    representation = resources.representation or find(given.encoder)
    vectors = unit(finite(representation, [record.question for record in held]))
    rest = [record for record in records if record.wrong_both_ways]
    asked = unit(finite(representation, [record.question for record in rest])) if rest else vectors[:0]
    lists = np.concatenate(list(nearest(vectors, vectors, max(given.k or 0, TRIED[-1] + 1), leave_out=True)))
    without = np.array([record.correct_without for record in held])
    with_ = np.array([record.correct_with for record in held])
    ks = np.array([given.k or _tuned(lists, known, without, with_, i) for i in range(count)])
    whole = given.k or _tuned(lists, known, without, with_, None)
    left = np.array([known[lists[i, :k]].mean() for i, k in enumerate(ks)])
    others = [known[found].mean(axis=1) for found in nearest(vectors, asked, whole)]
    return _together(records, known, ks, left, np.concatenate([np.zeros(0), *others]), whole)


def _together(
    records: Sequence[Record], known: Bools, ks: Array, left: Array, others: Array, whole: int
) -> LeftOut:
    """Figures in the order of the records, of which those wrong both ways took no part in fitting."""
    fitted = np.array([not record.wrong_both_ways for record in records])
    scores, thresholds = np.empty(len(records), np.float32), np.empty(len(records), np.float32)
    chosen = np.full(len(records), whole)
    scores[fitted], scores[~fitted] = left, others
    thresholds[fitted], thresholds[~fitted] = (known.sum() - known) / (len(known) - 1), known.mean()
    chosen[fitted] = ks
    return LeftOut(scores, thresholds, {"k": chosen.tolist()})


def _tuned(lists: Array, known: Bools, without: Array, with_: Array, out: int | None) -> int:
    """The k that kcard.gates.skr_knn tunes on all records but `out`."""
    rows = np.ones(len(lists), dtype=bool)
    near = lists[:, : TRIED[-1] + 1]
    total, others = int(known.sum()), len(lists) - 1
    if out is not None:
        rows[out] = False
        # Strike it from each list: what follows moves up, and the last of those without it goes.
        struck = near == out
        keep = ~struck
        keep[~struck.any(axis=1), -1] = False
        near = near[keep].reshape(len(near), TRIED[-1])
        total, others = total - int(known[out]), others - 1
    positive = total - known
    judged = rows & (positive > 0) & (positive < others)
    ks = np.arange(TRIED[0], TRIED[-1] + 1)
    knows = known[near].cumsum(axis=1)[:, ks - 1] * others >= positive[:, None] * ks
    right = np.where(knows, without[:, None], with_[:, None])[judged].mean(axis=0)
    return int(ks[right.round(9).argmax()])
