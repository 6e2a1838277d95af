"""The exam that comes with a card, as far as the hub reads it."""

from kcard.errors import CardError, UsageError
from kcard.json_values import parse

__all__ = ["EXAM", "checked_share", "examined", "is_exam"]

EXAM = "exam.json"
# Where docs/evaluation.md says that an exam has its mean factuality.
MEAN = ("own", "factuality", "mean", "mean")


def examined(exam: bytes) -> float | None:
    """Mean factuality, in [0, 1], by the text of an exam; None for one that can't be read."""
    try:
        value = parse(exam.decode())
        for key in MEAN:
            value = value[key]
        return checked_share(float(value))
    except (CardError, UsageError, ValueError, TypeError, KeyError):
        return None  # the exam of another program


def is_exam(text: bytes) -> bool:
    """Whether it is the text of an exam: recall of the card's own corpus, and factuality if that was measured."""
    try:
        own = parse(text.decode())["own"]
        checked_share(float(own["recall"]["mean"]))
        return own["factuality"] is None or examined(text) is not None
    except (UsageError, ValueError, TypeError, KeyError):
        return False


def checked_share(value: float) -> float:
    """The value; UsageError unless it lies in [0, 1]."""
    if not 0 <= value <= 1:
        raise UsageError(f"threshold {value:g}: it must be between 0 and 1, or off")
    return value
