"""The embedded reader: finds the words in a few passages that answer a question, or finds that none do.

It extracts; it neither reasons nor knows anything. How it was trained: weights/reader/README.md.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from kcard import encoder
from kcard.llms.span_network import IMPOSSIBLE, MAX_TOKENS, Network, Span, load, spans
from kcard.numbers import numbers

__all__ = ["NOTHING", "QUESTION_TOKENS", "WEIGHTS", "SpanReader", "best", "question_tokens", "read", "shared"]

WEIGHTS = Path(__file__).resolve().parent / "weights" / "reader"
MISSING_NUMBER = 4.0
QUESTION_TOKENS = MAX_TOKENS // 2
NOTHING = Span("", IMPOSSIBLE)


class SpanReader:
    """A Reader of kcard.protocols, with the shipped weights."""

    def extract(self, question: str, text: str) -> str | None:
        """The words of the text that answer the question; None where it holds that none do."""
        span = read(question, [text])
        return None if span.null or not span.text else span.text


def read(question: str, passages: Sequence[str]) -> Span:
    """The best answer over all passages, by the shipped weights."""
    return best(shared(), question, passages)


def best(network: Network, question: str, passages: Sequence[str]) -> Span:
    """The best answer over all passages.

    Each passage is read alone, so that its score does not depend on the others (measured: as exact as reading
    them together). A number of the question that a passage lacks counts against it, for so small a model confuses
    the 4th with the 5th. Passages that give the same answer support it: their odds add up. Of a question no more
    than QUESTION_TOKENS are read.
    """
    question = _cut(question, QUESTION_TOKENS)[0]
    room = MAX_TOKENS - 3 - question_tokens(question)
    pieces = [(piece, passage) for passage in passages for piece in _cut(passage, room) if piece]
    if not pieces:
        return NOTHING
    votes: dict[str, list[Span]] = {}
    found = spans(network, [question] * len(pieces), [piece for piece, _ in pieces])
    for span, (_, passage) in zip(found, pieces, strict=True):
        score = span.score - MISSING_NUMBER * len(numbers(question) - numbers(passage))
        votes.setdefault(span.text.lower(), []).append(Span(span.text, score))
    return max((_together(same) for same in votes.values()), key=lambda span: span.score)


def _together(same: Sequence[Span]) -> Span:
    top = max(span.score for span in same)
    return Span(same[0].text, top + math.log(sum(math.exp(span.score - top) for span in same)))


def question_tokens(question: str) -> int:
    """How many tokens the reader needs for a question."""
    return encoder.words().count(" ".join(question.split()))


def _cut(text: str, room: int) -> list[str]:
    """The text on one line, cut at its words into pieces of at most `room` tokens; one empty piece of no text."""
    text = " ".join(text.split())
    offsets = encoder.words().encodings([text])[0].offsets
    cuts = [0, *(offsets[i][0] for i in range(room, len(offsets), room)), len(text)]
    return [text[a:b].strip() for a, b in itertools.pairwise(cuts)]


@functools.cache
def shared() -> Network:
    """The shipped network, loaded once a process."""
    return load(WEIGHTS)
