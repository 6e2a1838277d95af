"""What a card must have reached in its exam: a number that is missing reaches nothing."""

from collections.abc import Mapping

from kcard.cards.format.folder import Card
from kcard.errors import HubError, UsageError
from kcard.evaluation.record import Exam, read_exam

__all__ = ["check_exam"]


def check_exam(card: Card, least: Mapping[str, float | None]) -> None:
    """Raise HubError unless the card's exam found at least what `least` asks of recall and factuality.

    None asks nothing. The message says what was found, what is needed and how to measure. Raises UsageError
    for a threshold outside [0, 1].
    """
    for what, threshold in least.items():
        if threshold is None:
            continue
        if not 0 <= threshold <= 1:
            raise UsageError(f"min-{what} is {threshold}: it must be between 0 and 1")
        exam = read_exam(card.folder)
        found = _mean(exam, what)
        if found is None:
            measure = f"kcard exam {card.folder}" + (" --evidence PATH" if what == "factuality" else "")
            raise HubError(
                f"{card.name} is not published: {_missing(exam, what)}, and {threshold:g} is needed; measure it "
                f"with `{measure}`"
            )
        if found < threshold:
            raise HubError(
                f"{card.name} is not published: its {what} is {found:g}, and {threshold:g} is needed; train it "
                f"longer or on more text, or ask for less with --min-{what}"
            )


def _mean(exam: Exam | None, what: str) -> float | None:
    """On the card's own corpus; on the given file where the corpus' text is not at hand."""
    run = exam and (exam.own or exam.given)
    if not run:
        return None
    factuality = run.factuality.mean if run.factuality else None
    mean = factuality if what == "factuality" else run.recall
    return None if mean is None else mean.mean


def _missing(exam: Exam | None, what: str) -> str:
    if exam is None:
        return "it has no exam"
    if what == "factuality" and exam.evidence is None:
        return "its exam measured no factuality (no independent evidence was given)"
    return f"its exam found no {what}"
