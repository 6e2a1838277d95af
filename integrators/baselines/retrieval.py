"""Retrieval: the best passages of a corpus (Adaptive Retrieval, section 5, takes one)."""

from dataclasses import dataclass

from kcard.answer import Passage
from kcard.protocols import LLM, Evidence
from kcard.request import Example

__all__ = ["NAME", "Retrieval"]

NAME = "retrieval"


@dataclass(frozen=True)
class Retrieval:
    """At most `k` passages, the best first; `Passage.source` holds place and score of each."""

    retriever: Evidence
    k: int

    def passages(self, llm: LLM, question: str, examples: tuple[Example, ...]) -> list[Passage]:
        del llm, examples
        return [Passage(NAME, found.text, source=found) for found in self.retriever.find(question, self.k)]
