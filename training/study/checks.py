"""Whether study material is supported by its passages: what is not is left out, so that nobody learns it."""

import re
from collections.abc import Sequence
from dataclasses import replace

from kcard.language import detect
from kcard.protocols import Checker, Pair, Reader
from kcard.training.study.item import QUESTIONS, StudyItem
from kcard.words import is_english, words

__all__ = ["SUPPORTED", "checked"]

# An implication is not said by the passage, so that a checker gives it less. Of 200 of GPT-4.1's implications .02 have
# that much support by another paragraph of the same article.
SUPPORTED, IMPLIED = 0.5, 0.25
ABOUT = 0.1  # cosine of the sentence encoder; of 150 questions of people to their paragraphs .99 have more
MENTION = re.compile(r"\b(?:the|this) (?:passage|text|paragraph|excerpt)\b", re.IGNORECASE)


def checked(
    item: StudyItem, passages: Sequence[str], checker: Checker, reader: Reader, language: str | None = None
) -> StudyItem | str:
    """The item with its support by the texts of its passages, or why it is left out, in a few words.

    The answer of a question must stand in a passage and not in the question; to a direct one, the reader must find it
    there, and to an unanswerable one nothing. It is not asked for the other kinds, whose words it hardly follows. A
    statement is scored by the checker; one that stands in the passage word for word teaches nothing, and what mentions
    the text is understood by nobody who does not see it. `language`: code of the passages' language, in which items
    must be as far as that can be told.
    """
    text = "\n".join(passages)
    if language is not None and detect([item.text]) not in {language, None}:
        return "in another language"
    if any(found.lower() not in text.lower() for found in MENTION.findall(item.text)):
        return "mentions the text"
    if item.kind in QUESTIONS:
        return _wrong_question(item, text, reader, language) or item
    if _holds(text, item.text):
        return "repeats the passage"
    support = float(checker.support([Pair(item.text, text)])[0])
    least = IMPLIED if item.kind == "implication" else SUPPORTED
    return replace(item, support=round(support, 3)) if support >= least else "not supported by the passage"


def _wrong_question(item: StudyItem, text: str, reader: Reader, language: str | None) -> str:
    """Why it is left out; empty where it is right."""
    if item.kind != "unanswerable":
        if not _holds(text, item.answer):
            return "the answer does not stand in the passage"
        if _holds(item.text, item.answer):
            return "the question gives the answer away"
    if language is not None and is_english(language) and not _about(item.text, text):
        return "about something else"
    if item.kind == "unanswerable":
        return "answered by the passage" if reader.extract(item.text, text) else ""
    if item.kind == "direct":
        found = reader.extract(item.text, text)
        if not found or not set(words(found)) & set(words(item.answer)):
            return "the reader finds another answer or none"
    return ""


def _about(question: str, text: str) -> bool:
    """As the sentence encoder sees it, which knows English."""
    from kcard.encoder import embed

    asked, told = embed([question, text])
    return float(asked @ told) >= ABOUT


def _holds(text: str, part: str) -> bool:
    """Whether the words of a part stand in a text, in a row."""
    return f" {' '.join(words(part))} " in f" {' '.join(words(text))} "
