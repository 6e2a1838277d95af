"""SKR's gate of the nearest neighbours: a question is known where those like it were (SKR, section 3.2)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.gates.kinds import GateState, LeftOut, Resources, typed
from kcard.gates.query import Query
from kcard.gates.record import Record
from kcard.gates.representation import Representation, bind, find, finite, unit
from kcard.gates.skr import Bools, sorted_out
from kcard.protocols import Array

__all__ = ["KIND", "TRIED", "NearestNeighbours", "NearestNeighboursSettings", "nearest", "tuned"]

Indices = npt.NDArray[np.int64]

KIND = "skr-knn"
TRIED = range(3, 11)  # the paper's k
DIGITS = 1e6  # similarities that agree to a millionth are equal, and then the order decides
ROWS = 1024
NOWHERE = -(2**62)  # below every key, and its negative is still a number


@dataclass(frozen=True)
class NearestNeighboursSettings:
    """k: neighbours asked; None: the best of 3 to 10, by leave-one-out. encoder: see kcard.gates.representation."""

    k: int | None = None
    encoder: str = "minilm"


@dataclass(frozen=True, eq=False)
class NearestNeighbours:
    """The score is the share l/k of the k nearest records that are of D+, by cosine; of equally near ones those that
    come first. The threshold is m/(m+n), D+ having m records and D- n: the paper's l/(k-l) >= m/n, finite at l = k.

    `vectors`: the records', of unit length, shape (m+n, d); `known`: which are of D+.
    """

    k: int
    representation: Representation
    vectors: Array
    known: Bools
    kind: ClassVar[str] = KIND

    @classmethod
    def fit(cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources) -> Self:
        """Records wrong both ways are left out. Raises UsageError for an empty D+ or D-, and k above what is left."""
        given = typed(NearestNeighboursSettings, settings, KIND)
        held, known = sorted_out(records, KIND)
        if given.k is not None and not 1 <= given.k <= len(held):
            raise UsageError(
                f"gate {KIND}: k is {given.k}, expected 1 to {len(held)}, the records to fit on (those wrong both "
                "ways are left out): choose a smaller k or add records"
            )
        representation = resources.representation or find(given.encoder)
        vectors = unit(finite(representation, [record.question for record in held]))
        k = given.k
        if k is None:
            most = min(TRIED[-1], len(held) - 1)
            k = tuned(np.concatenate([*nearest(vectors, vectors, most, leave_out=True)]), known, held)
        return cls(k, representation, vectors, known)

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], threshold: float, state: GateState, resources: Resources
    ) -> Self:
        given = typed(NearestNeighboursSettings, settings, KIND)
        vectors, known = state.arrays["vectors"], state.arrays["known"]
        if vectors.ndim != 2 or known.shape != vectors.shape[:1] or not 1 <= (given.k or 0) <= len(known):
            raise ValueError("its arrays don't fit each other")
        representation = bind(given.encoder, state.values["encoder_sha256"], resources.representation)
        found = cls(given.k or 0, representation, vectors, known.astype(bool))
        if found.threshold != threshold:
            raise ValueError("its threshold does not match its records")
        return found

    @classmethod
    def leave_one_out(
        cls, records: Sequence[Record], settings: Mapping[str, Any], resources: Resources
    ) -> LeftOut | None:
        """See kcard.gates.kinds.LeavesOneOut; raises what `fit` raises for all records."""
        from kcard.gates.skr_leave_one_out import leave_one_out

        return leave_one_out(records, typed(NearestNeighboursSettings, settings, KIND), resources)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"k": self.k, "encoder": self.representation.name}

    @property
    def threshold(self) -> float:
        """As float32, like the scores, so that equal shares compare as equal."""
        return float(np.float32(self.known.mean()))

    def scores(self, queries: Sequence[Query]) -> Array:
        asked = unit(finite(self.representation, [query.question for query in queries]))
        shares = [self.known[near].mean(axis=1) for near in nearest(self.vectors, asked, self.k)]
        return np.concatenate(shares).astype(np.float32) if shares else np.zeros(0, dtype=np.float32)

    def state(self) -> GateState:
        return GateState(
            {"vectors": self.vectors, "known": self.known.astype(np.uint8)},
            {"encoder_sha256": self.representation.digest},
        )


def tuned(lists: Indices, known: Bools, records: Sequence[Record], out: int | None = None) -> int:
    """The k of 3 to 10 by which leaving one record out answers most of them right; the smallest of equals.

    lists  the nearest of each record, itself apart, shape (m+n, at most 10)
    out    a record that takes no part; `lists` don't hold it

    The one that is left out counts in neither m nor n. Where it is alone in D+ or D- the others say nothing of
    it, so it is passed over.
    """
    count, total = len(records), int(known.sum())
    rows = np.ones(count, dtype=bool)
    if out is not None:
        rows[out], count, total = False, count - 1, total - int(known[out])
    positive = total - known  # m without the record
    judged = rows & (positive > 0) & (positive < count - 1)
    if not judged.any():
        return min(TRIED[0], count)
    largest = lists.shape[1]
    ks = np.arange(min(TRIED[0], largest), largest + 1)
    # l / k >= m / (m + n), in whole numbers
    knows = known[lists].cumsum(axis=1)[:, ks - 1] * (count - 1) >= positive[:, None] * ks
    without = np.array([record.correct_without for record in records])
    with_ = np.array([record.correct_with for record in records])
    right = np.where(knows, without[:, None], with_[:, None])[judged].mean(axis=0)
    return int(ks[right.round(9).argmax()])


def nearest(vectors: Array, asked: Array, k: int, leave_out: bool = False) -> Iterator[Indices]:
    """For each asked vector the k nearest others, nearest first, shape (rows, k), some rows at a time.

    `leave_out`: each asked vector is the one of the same number, which is not its own neighbour.
    """
    count = len(vectors)
    order = count - 1 - np.arange(count, dtype=np.int64)
    for start in range(0, len(asked), ROWS):
        rows = asked[start : start + ROWS]
        keys = np.rint((rows @ vectors.T) * DIGITS).astype(np.int64) * count + order
        if leave_out:
            keys[np.arange(len(rows)), start + np.arange(len(rows))] = NOWHERE
        found = np.argpartition(-keys, k - 1, axis=1)[:, :k]
        near = np.take_along_axis(keys, found, axis=1)
        yield np.take_along_axis(found, np.argsort(-near, axis=1), axis=1)
