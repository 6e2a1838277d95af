"""Stand-ins that several test modules share: an LLM, a representation, a parsed page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import numpy as np

from kcard.events import OnEvent
from kcard.interfaces import LLM, Array, Checker, Generator, Pair, Relevance
from kcard.types import Choice, Passage, Question, Reply, Request, Sampling


def questions(*texts: str) -> list[Question]:
    """Questions without options, as a pipeline passes them on."""
    return [Question(text) for text in texts]


def notes_to(messages: list[str]) -> OnEvent:
    """A callback that appends the sentences of notes."""
    return lambda event: messages.append(event.message) if event.is_note else None


def counts_to(counts: list[tuple[int, int | None]]) -> OnEvent:
    """A callback that appends (done, total) of progress."""
    return lambda event: None if event.is_note else counts.append((event.done, event.total))


class Says(LLM):
    """An LLM that gives these replies in turn, then the last one again and again."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        return Reply(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])


class Replies(LLM):
    """An LLM whose reply to a request a function gives; it keeps the requests."""

    def __init__(self, reply: Callable[[Request], Reply]) -> None:
        self._reply = reply
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        return self._reply(request)


class WrittenCards(Generator):
    """A pool whose cards generate what `write` returns for (card, number of documents), whatever the question.

    `calls` records the questions, the cards of the first question and the number of documents.
    """

    def __init__(self, cards: Sequence[Choice], write: Callable[[str, int], Sequence[Passage]]) -> None:
        self.cards, self._write = cards, write
        self.calls: list[tuple[tuple[str, ...], tuple[str, ...], int]] = []

    def generate(
        self,
        questions: Sequence[str | Question],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        del sampling
        texts = tuple(question if isinstance(question, str) else question.text for question in questions)
        self.calls += [(texts, tuple(names), documents) for names in cards[:1]]
        return [[p for name in names for p in self._write(name, documents)] for names in cards]


class Supports(Checker):
    """A checker that supports every claim alike."""

    def __init__(self, score: float = 1.0) -> None:
        self.score = score

    def support(self, pairs: Sequence[Pair]) -> Array:
        return np.full(len(pairs), self.score, dtype=np.float32)


@dataclass(frozen=True)
class WordOverlap(Checker):
    """A small real checker: the share of the claim's words that the evidence holds."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        shares = []
        for pair in pairs:
            claim, evidence = set(pair.claim.lower().split()), set(pair.evidence.lower().split())
            shares.append(len(claim & evidence) / len(claim))
        return np.array(shares, dtype=np.float32)


class FirstBest(Relevance):
    """Relevance that likes the first text best."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        del question
        return np.linspace(1, 0, len(texts), dtype=np.float32)


class SharedWords(Relevance):
    """Relevance as the share of common words; long texts lose."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        words = set(question.lower().split())
        shares = [len(words & set(text.lower().split())) / max(len(text.split()), 1) for text in texts]
        return np.array(shares, dtype=np.float32)


class LetterCounts:
    """A representation by letter counts, shape (n, 36)."""

    name, digest = "letters", "1" * 64

    def vectors(self, questions: Sequence[str]) -> Array:
        alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
        return np.array([[q.count(c) for c in alphabet] for q in questions], dtype=np.float32).reshape(-1, 36)


class Points:
    """A representation that reads the vector off the question: "1 2 3"."""

    name, digest = "points", "0" * 64

    def vectors(self, questions: Sequence[str]) -> Array:
        return np.array([question.split() for question in questions], dtype=np.float32)


class ParsedPage(HTMLParser):
    """Tags, attributes and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def without_times(value: Any) -> Any:
    """The value of JSON without what differs from run to run."""
    if isinstance(value, dict):
        return {key: without_times(inner) for key, inner in value.items() if "seconds" not in key}
    if isinstance(value, list | tuple):
        return [without_times(inner) for inner in value]
    return value
