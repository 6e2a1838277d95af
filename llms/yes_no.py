"""Reads a yes or no: from token probabilities where a backend gives them, otherwise from the first word.

Never from a substring ("know" holds "no"). A reply that is neither is None: whoever asked treats it as "more
information is needed", and the reply's text stays for the trace.
"""

import math
import re
from collections.abc import Iterable

__all__ = ["from_probabilities", "from_text"]

FIRST_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
LEAST_MASS = 0.05


def from_probabilities(tokens: Iterable[tuple[str, float]]) -> float | None:
    """P(yes) in [0, 1] from (token, log-probability) pairs of the first position.

    Tokens that read yes or no, whatever their case, blanks and marks, are summed and normalised. None where
    they hold less than LEAST_MASS together: then the model is saying something else.
    """
    mass = {"yes": 0.0, "no": 0.0}
    for token, log_probability in tokens:
        word = re.sub(r"[\W_]+", "", token).lower()
        if word in mass:
            mass[word] += math.exp(min(log_probability, 0.0))
    total = mass["yes"] + mass["no"]
    return mass["yes"] / total if total >= LEAST_MASS else None


def from_text(reply: str) -> float | None:
    """1 where the first word is yes, 0 where it is no, None otherwise."""
    match = FIRST_WORD.search(reply)
    return {"yes": 1.0, "no": 0.0}.get(match.group().lower()) if match else None
