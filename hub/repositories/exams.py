"""The exam of a card, as far as the hub reads it."""

from kcard.errors import CardError, UsageError
from kcard.json_values import parse

__all__ = ["EXAM", "checked_share", "examined", "is_exam"]

EXAM = "exam.json"
# The path of the mean factuality in an exam (docs/evaluation.md).
MEAN = ("own", "factuality", "mean", "mean")


def examined(exam: bytes) -> float | None:
    """The mean factuality of an exam, in [0, 1]; None if it has none."""
    try:
        value = parse(exam.decode())
        for key in MEAN:
            value = value[key]
        return checked_share(float(value))
    except (CardError, UsageError, ValueError, TypeError, KeyError):
        return None  # an unknown format


def is_exam(text: bytes) -> bool:
    """Whether it is a valid exam: with recall of the card's own corpus, and factuality if measured."""
    try:
        own = parse(text.decode())["own"]
        checked_share(float(own["recall"]["mean"]))
        return own["factuality"] is None or examined(text) is not None
    except (UsageError, ValueError, TypeError, KeyError):
        return False


def checked_share(value: float) -> float:
    """The value. Raises UsageError unless it is in [0, 1]."""
    if not 0 <= value <= 1:
        raise UsageError(f"threshold {value:g}: it must be between 0 and 1, or off")
    return value
