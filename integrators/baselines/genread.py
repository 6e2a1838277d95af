"""GenRead, in Knowledge Card GRTR: the LLM writes a document, then reads it (Yu et al., ICLR 2023, section 3.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.answer import Passage
from kcard.protocols import LLM
from kcard.replies import replies
from kcard.request import Example, Request

__all__ = ["GenRead"]


@dataclass(frozen=True)
class GenRead:
    """One document of the LLM's own; none where it writes nothing."""

    def passages(
        self, llm: LLM, questions: Sequence[str], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        wanted = [Request("document", question, examples=examples) for question in questions]
        texts = [reply.text.strip() for reply in replies(llm, wanted)]
        return [[Passage("genread", text)] if text else [] for text in texts]
