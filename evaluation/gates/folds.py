"""Records cut into folds, each of which is held out once while a gate is fitted on the others."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.gates.record import Record

__all__ = ["FOLDS", "Indices", "folds", "number_of_folds"]

FOLDS = 5
LEAVE_ONE_OUT = "loo"
Indices = npt.NDArray[np.intp]


def folds(records: Sequence[Record], count: int | None = FOLDS, seed: int = 0) -> list[Indices]:
    """The held-out records of each fold, ascending; every record is held out exactly once.

    count  how many; None: as many as records, each held out alone (leave one out)
    seed   which records share a fold; the same always gives the same

    The folds have equal parts, as far as may be, of the records where cards helped, did not, and were wrong both
    ways, so that few of a kind do not meet in one fold. Raises UsageError for fewer than two folds or records.
    """
    if len(records) < 2:
        raise UsageError("one record can't be held out and fitted on: give more records")
    if count is None:
        return [np.array([i]) for i in range(len(records))]
    if not 2 <= count <= len(records):
        raise UsageError(f"folds is {count}: it must be between 2 and the {len(records)} records, or loo")
    shuffled = np.random.default_rng(seed).permutation(len(records))
    kinds = np.array([record.seeks + 2 * record.wrong_both_ways for record in records])[shuffled]
    dealt = shuffled[np.argsort(kinds, kind="stable")]
    return [np.sort(dealt[first::count]) for first in range(count)]


def number_of_folds(text: str) -> int | None:
    """A number of folds as people write it, or loo, which is None; UsageError for anything else."""
    if text == LEAVE_ONE_OUT:
        return None
    if not text.isdecimal():
        raise UsageError(f"folds {text!r}: give a number such as {FOLDS}, or {LEAVE_ONE_OUT}")
    return int(text)
