"""An answer taken out of passages: words, whole sentences, a list, or yes or no with the sentences that say so.

What is said stands in the passages; nothing is made up.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kcard.llms.candidates import AnswerCandidate, candidates
from kcard.llms.confidence import features, nearness, probability
from kcard.llms.polarity import DECIDED, polarity
from kcard.llms.sentence_quote import SentenceQuote, joined, quoted, supports_of
from kcard.numbers import ordinals_as_in
from kcard.question_form import SENTENCES, Form, asks_for_words, form_of
from kcard.reader.reading import AnswerSpan, Reading, read_all

__all__ = ["Extract", "examine", "extract", "extract_all"]

MARK = re.compile(r"^[-*•]\s+")
SURE = 0.5  # certainty of words, over all passages that give them, below which sentences answer "what"


@dataclass(frozen=True)
class Extract:
    """An answer out of passages.

    text         what is said
    quote        the sentence that it rests on most
    passage      the number of the passage that this stands in
    probability  that the answer is right, in [0, 1]
    words        whether it is words alone, no quotation
    """

    text: str
    quote: str
    passage: int
    probability: float
    words: bool = False


@dataclass(frozen=True)
class _Draft:
    """An answer whose probability is not known yet, and the sentences that it rests on."""

    question: str
    form: Form
    best: AnswerCandidate
    text: str
    grounds: str
    first: str
    passage: int
    words: bool

    def features(self, near: float) -> dict[str, float]:
        return features(self.question, self.form, self.best, self.grounds, self.first, near)

    def extract(self, values: Mapping[str, float]) -> Extract:
        return Extract(self.text, self.first, self.passage, probability(values), self.words)


def extract(question: str, passages: Sequence[str]) -> Extract | None:
    """The best answer over all passages, which come the likeliest first; None where there is no text.

    Passages may begin with their headings.
    """
    return extract_all([(question, passages)])[0]


def extract_all(
    asked: Sequence[tuple[str, Sequence[str]]], headings: Sequence[Sequence[str]] | None = None
) -> list[Extract | None]:
    """The same of several questions, each with its passages, which are read together.

    `headings`: those that the passages of each question begin with, "" for none: they are read, but not quoted.
    """
    return [found[0] if found else None for found in _examined(asked, headings)]


def examine(question: str, passages: Sequence[str]) -> tuple[Extract, dict[str, float]] | None:
    """The same with the features that its probability was computed from."""
    return _examined([(question, passages)])[0]


def _examined(
    asked: Sequence[tuple[str, Sequence[str]]], headings: Sequence[Sequence[str]] | None = None
) -> list[tuple[Extract, dict[str, float]] | None]:
    asked = [(ordinals_as_in(passages, question), passages) for question, passages in asked]
    drafts = [
        _draft(question, passages, readings, over)
        for (question, passages), readings, over in zip(
            asked, read_all(asked), headings or [()] * len(asked), strict=True
        )
    ]
    near = iter(nearness([(draft.question, draft.grounds) for draft in drafts if draft]))
    found = []
    for draft in drafts:
        values = draft.features(next(near)) if draft else {}
        found.append((draft.extract(values), values) if draft else None)
    return found


def _draft(
    question: str, passages: Sequence[str], readings: Sequence[Reading], headings: Sequence[str]
) -> _Draft | None:
    form = form_of(question)
    found = candidates(question, form, passages, readings, headings)
    if not found:
        return None
    supports, best = supports_of(question, found), found[0]
    words = None if form in (*SENTENCES, "yes/no") else best.answer
    around = _sentence(best, words, supports[0])
    said = "" if words is None else _within_sentence(best, words, around)
    if words is not None and _certainty(words, found) >= SURE:
        first = joined(best, around)
        return _Draft(question, form, best, said, _headed(best, first), first, best.passage, words=True)
    quote = quoted(found, supports, whole_list=form in ("how", "list"))
    passage, grounds = found[quote.candidate].passage, _headed(found[quote.candidate], quote.text)
    if words is not None and asks_for_words(question, form):
        # However unsure, a name, a place, a time or a number is named; the sentences tell how sure it is.
        first = joined(best, around)
        return _Draft(question, form, best, said, grounds, first, best.passage, words=True)
    text = _decided(question, quote) if form == "yes/no" else _unmarked(quote.text)
    return _Draft(question, form, best, text, grounds, quote.first, passage, words=False)


def _headed(candidate: AnswerCandidate, text: str) -> str:
    """A quotation behind the heading of its passage, where it begins this: confidence was fitted to that."""
    heading, body = candidate.text[: candidate.begin], " ".join(candidate.text[candidate.begin :].split())
    opening = " ".join(text.partition(" … ")[0].partition("\n")[0].split())
    return heading + text if body.startswith(opening) else text


def _sentence(candidate: AnswerCandidate, words: AnswerSpan | None, support: Sequence[float]) -> int:
    """The number of the sentence that the words begin in; without words, of the likeliest."""
    sentences = candidate.sentences
    if words is not None:
        for at, sentence in enumerate(sentences):
            if sentence.start <= words.start < sentence.end:
                return at
    return int(np.argmax(support))


def _within_sentence(candidate: AnswerCandidate, words: AnswerSpan, at: int) -> str:
    """The words to the end of the sentence that they begin in."""
    text, end = candidate.text, candidate.sentences[at].end
    return text[words.start : end] if end < words.end and text[end].isspace() else words.text


def _certainty(words: AnswerSpan, found: Sequence[AnswerCandidate]) -> float:
    """That of words which several passages may give: one of them is right."""
    same = (c.answer for c in found if c.answer and c.answer.text.lower() == words.text.lower())
    return 1 - math.prod(1 - answer.certainty for answer in same)


def _decided(question: str, quote: SentenceQuote) -> str:
    """Yes or no and the part that tells which; the whole quotation, where none does."""
    yes = polarity(question, quote.first)
    if abs(yes) < DECIDED:
        return _unmarked(quote.text)
    return f"{'Yes' if yes > 0 else 'No'}: {_unmarked(quote.first)}"


def _unmarked(text: str) -> str:
    """A lone item of a list without its mark; other text as it is."""
    return text if "\n" in text else MARK.sub("", text)
