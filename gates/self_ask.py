"""Self-ask: the LLM itself says whether it needs more information (Knowledge Card, section 2.3; SKR, section 3.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from kcard.protocols import LLM, Array
from kcard.replies import replies
from kcard.request import Example, Request, Turn

__all__ = [
    "KNOWLEDGE_CARD",
    "SKR",
    "SelfAsk",
    "SelfAskEnsemble",
    "SelfAskSKR",
    "SelfAskSKREnsemble",
    "asked",
    "needs",
]

KNOWLEDGE_CARD = (0, 1, 2)  # Request.template of each paper's wordings
SKR = (3, 4, 5, 6, 7)


@dataclass(frozen=True)
class SelfAsk:
    """One `need` request a question and wording; by default in Knowledge Card's first. The score is that of `asked`."""

    llm: LLM
    examples: Sequence[Example] = ()
    wordings: Sequence[int] = KNOWLEDGE_CARD[:1]

    @property
    def templates(self) -> int:
        """In how many of Knowledge Card's wordings top-down asks between its rounds."""
        return len(KNOWLEDGE_CARD) if self.wordings == KNOWLEDGE_CARD else 1

    def turn(self, fired: bool) -> Turn:
        """What was asked, in the first of its wordings, and the verdict."""
        return Turn("need", "Yes" if fired else "No", self.wordings[0])

    def knows(self, questions: Sequence[str]) -> Array:
        return asked(self.llm, questions, tuple(self.examples), self.wordings)


SelfAskEnsemble = partial(SelfAsk, wordings=KNOWLEDGE_CARD)  # each of its three wordings has a vote
SelfAskSKR = partial(SelfAsk, wordings=SKR[:1])  # with examples, SKR's in-context learning
SelfAskSKREnsemble = partial(SelfAsk, wordings=SKR)


def asked(
    llm: LLM, questions: Sequence[str], examples: tuple[Example, ...], wordings: Sequence[int]
) -> Array:
    """How sure the LLM says it is to know, shape (n,), in [0, 1]; several wordings decide by majority."""
    requests = [Request("need", question, (), examples) for question in questions]
    return np.array([1 - found for found in needs(llm, requests, wordings)], dtype=np.float32)


def needs(llm: LLM, requests: Sequence[Request], wordings: Sequence[int] = KNOWLEDGE_CARD[:1]) -> list[float]:
    """How far the LLM needs more information for each request, in [0, 1]; above 0.5 it does.

    With one wording that is P(yes), yes being the reply that asks for more. With more of them (use an odd number) it
    is the share of those whose P(yes) is above 0.5, so that the majority decides. A reply that says neither yes nor no
    counts as a need.
    """
    said = [replies(llm, [replace(request, template=w) for request in requests]) for w in wordings]
    found = [
        [1.0 if reply.yes is None else reply.yes for reply in votes] for votes in zip(*said, strict=True)
    ]
    return [v[0] if len(v) == 1 else sum(yes > 0.5 for yes in v) / len(v) for v in found]
