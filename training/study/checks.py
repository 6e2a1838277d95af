"""Whether study material is supported by its passages: what is not is left out, so that nobody learns it."""

from collections.abc import Sequence
from dataclasses import replace

from kcard.protocols import Checker, Pair, Reader
from kcard.training.study.item import QUESTIONS, StudyItem
from kcard.words import words

__all__ = ["SUPPORTED", "checked"]

SUPPORTED = 0.5


def checked(item: StudyItem, passages: Sequence[str], checker: Checker, reader: Reader) -> StudyItem | str:
    """The item with its support by the texts of its passages, or why it is left out, in a few words.

    The answer of a question must stand in a passage and not in the question; to a direct one, the reader must find it
    there, and to an unanswerable one nothing. It is not asked for the other kinds, whose words it hardly follows. A
    statement is scored by the checker.
    """
    text = "\n".join(passages)
    if item.kind not in QUESTIONS:
        support = float(checker.support([Pair(item.text, text)])[0])
        if support < SUPPORTED:
            return "not supported by the passage"
        return replace(item, support=round(support, 3))
    if item.kind == "unanswerable":
        return "answered by the passage" if reader.extract(item.text, text) else item
    if not _holds(text, item.answer):
        return "the answer does not stand in the passage"
    if _holds(item.text, item.answer):
        return "the question gives the answer away"
    if item.kind == "direct":
        found = reader.extract(item.text, text)
        if not found or not set(words(found)) & set(words(item.answer)):
            return "the reader finds another answer or none"
    return item


def _holds(text: str, part: str) -> bool:
    """Whether the words of a part stand in a text, in a row."""
    return f" {' '.join(words(part))} " in f" {' '.join(words(text))} "
