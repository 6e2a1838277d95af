"""What the embedded reader says of each passage for a question, the likeliest passage first."""

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.answer_type import fits
from kcard.numbers import numbers
from kcard.question_form import Form
from kcard.reader.reading import AnswerSpan, Reading, Sentence
from kcard.words import analyzer

__all__ = ["STEMS", "AnswerCandidate", "asked_about", "candidates", "coverage"]

MISSING_NUMBER = 4.0  # log-odds for each number of the question that a passage lacks
LATER = 0.7  # log-odds for each passage that stands before, of the first FEW
FEW = 3
MISFIT = 3.0  # log-odds for words that are not of the kind that the question asks for
WORD = re.compile(r"\w[\w.+/-]*\w|\w")
STEMS = analyzer("english")
_ASKING = """
a an the of in on at to for from by with and or is are was were be been do does did can could will would should has have
had may might must i my me we our you your it its this that these those there what which who whom whose when where why
how many much long often if not no as so than then
"""
ASKING = frozenset(_ASKING.split())


@dataclass(frozen=True)
class AnswerCandidate:
    """A passage and its number, what the reader says of it, the words of it that answer, if any, and its score, which
    is log-odds of a kind. `begin`: where its text begins, behind its heading."""

    passage: int
    text: str
    reading: Reading
    answer: AnswerSpan | None
    score: float
    begin: int = 0

    @functools.cached_property
    def sentences(self) -> tuple[Sentence, ...]:
        """Those of the passage, without its heading; the heading's, where there is no more."""
        behind = tuple(
            replace(sentence, start=max(sentence.start, self.begin))
            for sentence in self.reading.sentences
            if sentence.end > self.begin
        )
        return behind or self.reading.sentences


def candidates(
    question: str,
    form: Form,
    passages: Sequence[str],
    readings: Sequence[Reading],
    headings: Sequence[str] = (),
) -> list[AnswerCandidate]:
    """The passages that have text, the best first; they come the likeliest first, by whoever found them."""
    asked = numbers(question)
    found = []
    for at, (text, reading) in enumerate(zip(passages, readings, strict=True)):
        heading = f"{headings[at]}: " if at < len(headings) and headings[at] else ""
        if reading.sentences:
            answer = max(reading.answers, key=lambda words: _likelihood(form, words), default=None)
            score = reading.relevance - MISSING_NUMBER * len(asked - numbers(text))
            score -= 0.0 if answer and fits(form, answer.text) else MISFIT
            begin = len(heading) if text.startswith(heading) else 0
            found.append(AnswerCandidate(at, text, reading, answer, score - LATER * min(at, FEW), begin))
    return sorted(found, key=lambda candidate: -candidate.score)


def _likelihood(form: Form, words: AnswerSpan) -> float:
    return math.log(max(words.certainty, 1e-9)) - (0.0 if fits(form, words.text) else MISFIT)


def asked_about(question: str) -> set[str]:
    """The stems of the words that a question is about."""
    telling = (word for word in WORD.findall(question) if word.lower() not in ASKING)
    return {stem for word in telling for stem in STEMS(word)}


def coverage(question: str, text: str) -> float:
    """The share of the words that a question is about which a text has, by their stems; 0 where it is about none."""
    asked = asked_about(question)
    return len(asked & set(STEMS(text))) / len(asked) if asked else 0.0
