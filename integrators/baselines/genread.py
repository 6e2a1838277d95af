"""GenRead, in Knowledge Card GRTR: the LLM writes a document, then reads it (Yu et al., ICLR 2023, section 3.1)."""

from dataclasses import dataclass

from kcard.answer import Passage
from kcard.protocols import LLM
from kcard.request import Example, Request

__all__ = ["GenRead"]


@dataclass(frozen=True)
class GenRead:
    """One document of the LLM's own; none where it writes nothing."""

    def passages(self, llm: LLM, question: str, examples: tuple[Example, ...]) -> list[Passage]:
        text = llm.reply(Request("document", question, examples=examples)).text.strip()
        return [Passage("genread", text)] if text else []
