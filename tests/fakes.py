"""Stand-ins that several test modules share: an LLM, a representation, a parsed page."""

from collections.abc import Sequence
from html.parser import HTMLParser

import numpy as np

from kcard.interfaces import Array
from kcard.types import Reply, Request


class Says:
    """An LLM that gives these replies in turn, then the last one again and again."""

    def __init__(self, *replies: str) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        return Reply(self.replies.pop(0) if len(self.replies) > 1 else self.replies[0])


class LetterCounts:
    """A representation by letter counts, shape (n, 36)."""

    name, digest = "letters", "1" * 64

    def vectors(self, questions: Sequence[str]) -> Array:
        alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
        return np.array([[q.count(c) for c in alphabet] for q in questions], dtype=np.float32).reshape(-1, 36)


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
