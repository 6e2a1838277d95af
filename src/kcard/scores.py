"""Scores that someone else's code gave, held to what was agreed before they decide anything."""

from collections.abc import Sequence

import numpy as np

from kcard.errors import UsageError
from kcard.protocols import Array

__all__ = ["valid"]

ROUNDING = 1e-4  # by so much a cosine of unit vectors may leave its range


def valid(scores: Array | Sequence[float], count: int, bounds: tuple[float, float], who: str) -> Array:
    """The scores as float32, shape (count,), within `bounds`; what rounding carried over them is put back.

    Raises UsageError, which names `who`, for another shape, for what is not a number and for one out of bounds.
    """
    low, high = bounds
    try:
        found = np.asarray(scores, dtype=np.float32)
    except (TypeError, ValueError):
        raise UsageError(f"{who} did not return a list of numbers: expected {count}") from None
    if found.shape != (count,):
        raise UsageError(
            f"{who} gave scores of shape {found.shape} where {count} were expected: one per text"
        )
    wrong = ~((found >= low - ROUNDING) & (found <= high + ROUNDING))  # also true of nan
    if wrong.any():
        where = int(wrong.argmax())
        raise UsageError(
            f"{who} gave the score {found[where]} (number {where + 1} of {count}): scores lie in [{low:g}, {high:g}]"
        )
    return np.clip(found, low, high)
