"""A kind of gate tried on records that it was not fitted on: fold by fold, each record is scored held out."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kcard.evaluation.gates.folds import Indices
from kcard.evaluation.gates.outcome import Floats, Seeks
from kcard.gates import representation
from kcard.gates.kinds import Fitted, Kind, LeavesOneOut, Probabilistic, Resources
from kcard.gates.record import Record

__all__ = ["Trial", "embedding_once", "scored", "tried"]

ENCODER = "minilm"


@dataclass(frozen=True)
class Trial:
    """Scores and thresholds, shape (n,) each.

    correct_without  P(right without cards), shape (n,); None where the kind gives none
    fits   the gate of each fold, in their order; empty where the kind left records out by itself
    tuned  how many folds took each value of the settings in which the folds differ: {"k": {"5": 4, "7": 1}}
    """

    scores: Floats
    thresholds: Floats
    correct_without: Floats | None = None
    fits: tuple[Fitted, ...] = ()
    tuned: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def seeks(self) -> Seeks:
        return np.asarray(self.scores < self.thresholds)


def tried(
    records: Sequence[Record],
    kind: Kind,
    settings: Mapping[str, Any],
    resources: Resources,
    folds: Sequence[Indices],
    report: Callable[[int], None] | None = None,
) -> Trial:
    """Fit the kind on all folds but one, and score that one; whatever a kind tunes, it tunes on the others.

    `report` is called with how many folds are done. Raises what fitting and scoring raise.
    """
    if len(folds) == len(records) and isinstance(kind, LeavesOneOut):
        left = kind.leave_one_out(records, settings, resources)
        if left is not None:
            tuned = _counted(left.tuned)
            return Trial(left.scores.astype(np.float64), left.thresholds.astype(np.float64), tuned=tuned)
    scores, thresholds, right = (np.zeros(len(records)) for _ in range(3))
    fits: list[Fitted] = []
    for done, held_out in enumerate(folds, 1):
        out = set(held_out.tolist())
        fitted = kind.fit([r for i, r in enumerate(records) if i not in out], settings, resources)
        queries = [records[i].query for i in held_out]
        scores[held_out] = fitted.scores(queries)
        if isinstance(fitted, Probabilistic):
            right[held_out] = fitted.correct_without(queries)
        thresholds[held_out] = fitted.threshold
        fits.append(fitted)
        if report:
            report(done)
    values = {key: [fit.settings.get(key) for fit in fits] for key in fits[0].settings}
    correct_without = right if isinstance(fits[0], Probabilistic) else None
    return Trial(scores, thresholds, correct_without, tuple(fits), _counted(values))


def scored(records: Sequence[Record], fitted: Fitted) -> Trial:
    """A fitted gate as it is, on records that it may have been fitted on: no fold is held out."""
    queries = [record.query for record in records]
    scores = np.asarray(fitted.scores(queries), dtype=np.float64)
    right = fitted.correct_without(queries).astype(np.float64) if isinstance(fitted, Probabilistic) else None
    return Trial(scores, np.full(len(records), fitted.threshold), right, (fitted,))


def _counted(settings: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, int]]:
    found = {key: Counter(map(str, values)) for key, values in settings.items()}
    return {key: dict(counts.most_common()) for key, counts in found.items() if len(counts) > 1}


def embedding_once(resources: Resources, settings: Mapping[str, Any]) -> Resources:
    """The same, with a representation that embeds each question once however often gates are fitted."""
    if resources.representation is not None:
        return resources
    found = representation.find(str(settings.get("encoder", ENCODER)))
    return replace(resources, representation=representation.CachedRepresentation(found))
