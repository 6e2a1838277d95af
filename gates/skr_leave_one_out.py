"""SKR's nearest neighbours, each record left out in turn, without fitting as many gates as there are records.

The nearest records are sought once. To leave one out is to strike it from the lists of the others; what is tuned is
tuned on those lists, so every figure is that of a gate which was fitted without the record.
"""

from collections.abc import Sequence

import numpy as np

from kcard.gates.kinds import LeftOut, Resources
from kcard.gates.record import Record
from kcard.gates.representation import find, finite, unit
from kcard.gates.skr import Bools, sorted_out
from kcard.gates.skr_knn import KIND, TRIED, Indices, NearestNeighboursSettings, nearest, tuned
from kcard.protocols import Array

__all__ = ["leave_one_out"]


def leave_one_out(
    records: Sequence[Record], given: NearestNeighboursSettings, resources: Resources
) -> LeftOut | None:
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
    near = lists[:, : TRIED[-1] + 1]
    ks = np.array([given.k or tuned(_without(near, i), known, held, i) for i in range(count)])
    whole = given.k or tuned(near[:, :-1], known, held)
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


def _without(lists: Indices, out: int) -> Indices:
    """The lists with a record struck from each: what follows it moves up, and the last of the others goes."""
    keep = lists != out
    keep[keep.all(axis=1), -1] = False
    kept: Indices = lists[keep].reshape(len(lists), -1)
    return kept
