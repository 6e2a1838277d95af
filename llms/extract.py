"""An answer taken out of passages: words, whole sentences, a list, or yes or no with the sentences that say so.

What is said stands in the passages; nothing is made up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kcard.llms.candidates import AnswerCandidate, candidates
from kcard.llms.confidence import features, probability
from kcard.llms.polarity import DECIDED, polarity
from kcard.llms.sentence_quote import SentenceQuote, joined, quoted, supports_of
from kcard.question_form import SENTENCES, Form, form_of
from kcard.reader.reading import AnswerSpan

__all__ = ["Extract", "examine", "extract"]

SURE = 0.5  # certainty of words, over all passages that give them, below which sentences are given


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


def extract(question: str, passages: Sequence[str]) -> Extract | None:
    """The best answer over all passages, which come the likeliest first; None where there is no text.

    Passages may begin with their headings.
    """
    found = examine(question, passages)
    return found[0] if found else None


def examine(question: str, passages: Sequence[str]) -> tuple[Extract, dict[str, float]] | None:
    """The same with the features that its probability was computed from."""
    form = form_of(question)
    found = candidates(question, form, passages)
    if not found:
        return None
    supports = supports_of(question, found)
    words = _words(form, found, supports[0])
    if words is None:
        quote = quoted(found, supports, whole_list=form in ("how", "list"))
        text = _decided(question, quote) if form == "yes/no" else quote.text
        grounds, first, at = quote.text, quote.first, quote.candidate
    else:
        text, first = words
        grounds, at = first, 0
    values = features(question, form, found[0], grounds, first)
    return Extract(text, first, found[at].passage, probability(values), words is not None), values


def _words(form: Form, found: Sequence[AnswerCandidate], support: Sequence[float]) -> tuple[str, str] | None:
    """(the words that answer, their sentence), where words can answer and the reader is sure of them."""
    best, words = found[0], found[0].answer
    if form in (*SENTENCES, "yes/no") or words is None or _certainty(words, found) < SURE:
        return None
    around = (at for at, s in enumerate(best.reading.sentences) if s.start <= words.start < s.end)
    return words.text, joined(best, next(around, int(np.argmax(support))))


def _certainty(words: AnswerSpan, found: Sequence[AnswerCandidate]) -> float:
    """That of words which several passages may give: one of them is right."""
    same = (c.answer for c in found if c.answer and c.answer.text.lower() == words.text.lower())
    return 1 - math.prod(1 - answer.certainty for answer in same)


def _decided(question: str, quote: SentenceQuote) -> str:
    """The quotation, behind yes or no where its likeliest part tells which."""
    yes = polarity(question, quote.first)
    return quote.text if abs(yes) < DECIDED else f"{'Yes' if yes > 0 else 'No'}: {quote.text}"
