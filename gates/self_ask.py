"""Self-ask: the LLM itself says whether it needs more information (Knowledge Card, section 2.3)."""

from collections.abc import Sequence

import numpy as np

from kcard.protocols import LLM, Array
from kcard.request import Example, Request

__all__ = ["SelfAsk"]


class SelfAsk:
    """One `need` request a question; score = 1 - P(yes), so 1 means that nothing more is needed."""

    def __init__(self, llm: LLM, examples: Sequence[Example] = ()) -> None:
        self._llm = llm
        self._examples = tuple(examples)

    def knows(self, questions: Sequence[str]) -> Array:
        return np.array([1.0 - self._need(question) for question in questions], dtype=np.float32)

    def _need(self, question: str) -> float:
        reply = self._llm.reply(Request("need", question, examples=self._examples))
        return 1.0 if reply.yes is None else reply.yes
