"""What a draft tells of itself: its form against the question's, hedges, lengths, repetition. Numbers, no model."""

import re
from typing import get_args

import numpy as np
import numpy.typing as npt

from kcard.answer_type import fits
from kcard.question_form import Form, form_of

__all__ = ["COUNT", "answer_of", "features", "plain"]

Floats = npt.NDArray[np.float64]
FORMS: tuple[Form, ...] = get_args(Form)
OF_DRAFT = 7
COUNT = len(FORMS) + OF_DRAFT + 18
HEDGE = re.compile(
    r"\b(unknown|not (?:available|known|mentioned|specified|provided|given|sure|clear|possible|enough)"
    r"|no information|don't know|do not know|cannot|can't|unable|unclear|uncertain|incomplete|insufficient"
    r"|probably|possibly|perhaps|might|may be|i think|i believe)\b",
    re.IGNORECASE,
)
CONCLUSION = re.compile(r"\banswer is:?\s+", re.IGNORECASE)
CONCLUDED = re.compile(r"\bso the answer is\b", re.IGNORECASE)
ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
WORD = re.compile(r"\w+")
CAPITAL = re.compile(r"(?<=\s)[A-Z]\w+")
RELATION = re.compile(r"\b(?:of|that|which|whose)\b")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
LONGEST = 200  # characters of an answer


def plain(text: str) -> str:
    """The text without the escapes that some files keep as letters (backslash, u, four digits), on one line."""
    return " ".join(ESCAPED.sub(lambda found: chr(int(found[1], 16)), text).replace('\\"', '"').split())


def answer_of(draft: str) -> str:
    """What follows "the answer is:" in a draft that reasons first, else the text; at most 200 characters."""
    return CONCLUSION.split(draft)[-1].strip().removesuffix(".")[:LONGEST]


def features(question: str, answer: str, draft: str | None) -> list[float]:
    """COUNT numbers; any text will do, an empty one too. What is known of a draft only is NaN where there is none."""
    form = form_of(question)
    asked, said = _words(question), _words(answer)
    return [
        *(float(form == known) for known in FORMS),
        *_of_draft(answer, draft),
        # The answer
        float(fits(form, answer)),
        float(answer.lower().strip(" .") in {"yes", "no"}),
        float(bool(HEDGE.search(answer))),
        float(bool(re.search(r"\d", answer))),
        float(bool(re.fullmatch(r"\W*\d{4}\W*", answer))),
        float(answer[:1].isupper()),
        float("," in answer),
        float(np.log1p(len(answer))),
        float(len(said)),
        sum(word in set(asked) for word in said) / max(1, len(said)),
        # The question
        float(len(asked)),
        float(np.log1p(len(question))),
        float(bool(re.search(r"\d", question))),
        float(question[:1].isupper()),
        float(question.rstrip().endswith("?")),
        float(len(CAPITAL.findall(question))),
        float(len(RELATION.findall(question.lower()))),
        _letters(asked),
    ]


def _of_draft(answer: str, draft: str | None) -> list[float]:
    if draft is None:
        return [float("nan")] * OF_DRAFT
    words = draft.lower().split()
    return [
        float(bool(HEDGE.search(draft))),
        float(bool(CONCLUDED.search(draft))),
        float(np.log1p(len(draft))),
        float(len(SENTENCE_END.split(draft))),
        len(set(words)) / max(1, len(words)),
        float(len(CAPITAL.findall(draft))),
        float(draft.lower().count(answer.lower()) if answer else 0),
    ]


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _letters(words: list[str]) -> float:
    """The mean length of a word."""
    return sum(map(len, words)) / max(1, len(words))
