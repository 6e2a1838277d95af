"""Self-ask: the LLM itself says whether it needs more information (Knowledge Card, section 2.3)."""

from collections.abc import Sequence

import numpy as np

from kcard.protocols import LLM, Array
from kcard.request import Example, Request

__all__ = ["SelfAsk", "SelfAskEnsemble", "need"]

TEMPLATES = 3


class SelfAsk:
    """One `need` request a question; score = 1 - P(yes), so 1 means that nothing more is needed."""

    templates = 1

    def __init__(self, llm: LLM, examples: Sequence[Example] = ()) -> None:
        self._llm = llm
        self._examples = tuple(examples)

    def knows(self, questions: Sequence[str]) -> Array:
        return np.array([1 - need(self._llm, q, (), self._examples) for q in questions], dtype=np.float32)


class SelfAskEnsemble:
    """The paper's three wordings, each a request and a vote; score = 1 - share of the votes for yes."""

    templates = TEMPLATES

    def __init__(self, llm: LLM, examples: Sequence[Example] = ()) -> None:
        self._llm = llm
        self._examples = tuple(examples)

    def knows(self, questions: Sequence[str]) -> Array:
        needs = [need(self._llm, q, (), self._examples, TEMPLATES) for q in questions]
        return np.array([1 - found for found in needs], dtype=np.float32)


def need(
    llm: LLM,
    question: str,
    knowledge: Sequence[str] = (),
    examples: Sequence[Example] = (),
    templates: int = 1,
) -> float:
    """How far the LLM needs more information, in [0, 1]; above 0.5 it does.

    With one template that is P(yes). With more of them (use an odd number) it is the share of those whose P(yes) is
    above 0.5, so that the majority decides. A reply that says neither yes nor no counts as a need.
    """
    requests = (Request("need", question, tuple(knowledge), tuple(examples), (), i) for i in range(templates))
    replies = [llm.reply(request).yes for request in requests]
    needs = [1.0 if yes is None else yes for yes in replies]
    return needs[0] if templates == 1 else sum(found > 0.5 for found in needs) / templates
