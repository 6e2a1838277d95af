"""What SKR's gates are fitted on: the questions of D+, which the LLM answers as well alone, and those of D-."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kcard.errors import UsageError
from kcard.gates.record import Record

__all__ = ["Bools", "sorted_out"]

Bools = npt.NDArray[np.bool_]


def sorted_out(records: Sequence[Record], kind: str) -> tuple[list[Record], Bools]:
    """The records of D+ and D-, in their order, and which belong to D+; those wrong both ways are left out.

    Raises UsageError where either is empty: then there is nothing to tell apart, and the literal rule of the paper
    (section 3.2) would call everything known, or nothing (SKR, section 3.1).
    """
    held = [record for record in records if not record.wrong_both_ways]
    known = np.array([record.knows for record in held], dtype=bool)
    for missing, what in ((known.all(), "better with cards"), (not known.any(), "as well without cards")):
        if missing:
            raise UsageError(
                f"gate {kind}: of {len(records)} records none has a question that was answered {what}: add such "
                "records, or use the gate never or always"
            )
    return held, known
