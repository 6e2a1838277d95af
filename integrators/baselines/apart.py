"""Passages read one at a time: one answer for each, and what is known of its probability."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.protocols import LLM
from kcard.replies import replies
from kcard.request import Reply, Request
from kcard.words import words

__all__ = ["Candidate", "read_apart", "settled"]


@dataclass(frozen=True)
class Candidate:
    """An answer to the question with one passage, or with none.

    probability  that of the answer: the geometric mean over its tokens where the LLM gives them, else its own
                 confidence, of an option its share among the options; None where it gives neither
    """

    reply: Reply
    probability: float | None

    @property
    def key(self) -> str:
        """What equal answers have in common: the chosen option, else the words, without case and punctuation."""
        return self.reply.choice or " ".join(words(self.reply.text)) or self.reply.text

    @property
    def answers(self) -> bool:
        """Whether the LLM knows an answer and, where there are options, chose one."""
        return self.reply.known and self.reply.choice != ""


def read_apart(
    llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[tuple[str, ...]]]
) -> list[list[Candidate]]:
    """For each request the answer with each of its passages alone (an empty one is none): the likeliest words, or the
    likeliest option."""
    rows = zip(requests, passages, strict=True)
    asked = [
        replace(request, knowledge=read, draft=not request.choices)
        for request, apart in rows
        for read in apart
    ]
    found = iter([Candidate(reply, _probability(reply)) for reply in replies(llm, asked)])
    return [[next(found) for _ in apart] for apart in passages]


def settled(candidates: Sequence[Candidate], weights: Sequence[float]) -> Reply:
    """The reply whose answer has the largest sum of weights; of its wordings the heaviest, of equal ones the first.

    A reply without an answer abstains: it counts only where all do.
    """
    voting = [i for i, found in enumerate(candidates) if found.answers] or [*range(len(candidates))]
    mass: dict[str, float] = {}
    for i in voting:
        mass[candidates[i].key] = mass.get(candidates[i].key, 0.0) + weights[i]
    winner = max(mass, key=mass.__getitem__)
    return candidates[max((i for i in voting if candidates[i].key == winner), key=lambda i: weights[i])].reply


def _probability(reply: Reply) -> float | None:
    if reply.tokens:
        return math.exp(sum(token.log_probability for token in reply.tokens) / len(reply.tokens))
    return reply.confidence
