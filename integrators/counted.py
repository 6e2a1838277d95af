"""Counts the requests that each question costs."""

from collections import Counter

from kcard.protocols import LLM
from kcard.request import Reply, Request

__all__ = ["Counted"]


class Counted:
    """An LLM that counts its requests by question; a request that fails counts too."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.calls: Counter[str] = Counter()

    def reply(self, request: Request) -> Reply:
        self.calls[request.question] += 1
        return self._llm.reply(request)
