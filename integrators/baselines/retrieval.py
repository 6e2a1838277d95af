"""Retrieval: the best passages of a corpus (Adaptive Retrieval, section 5, takes one)."""

from collections.abc import Sequence
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

    def passages(
        self, llm: LLM, questions: Sequence[str], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        del llm, examples
        found = [self.retriever.find(question, self.k) for question in questions]
        return [[Passage(NAME, source.text, source=source) for source in part] for part in found]
