"""Several texts of the LLM's own, drawn for one request."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.answer import Passage
from kcard.batches import batched
from kcard.protocols import LLM
from kcard.replies import replies
from kcard.request import Example, Request

__all__ = ["Drawn"]


@dataclass(frozen=True)
class Drawn:
    """`samples` replies to one request a question, drawn at `temperature`; empty ones are left out, equal ones stay.

    request  without question and examples
    """

    name: str
    request: Request
    samples: int
    temperature: float

    def passages(
        self, llm: LLM, questions: Sequence[str], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        wanted = replace(self.request, examples=examples, temperature=self.temperature)
        draws = [replace(wanted, question=q, sample=n) for q in questions for n in range(self.samples)]
        texts = batched((reply.text.strip() for reply in replies(llm, draws)), self.samples)
        return [[Passage(self.name, text) for text in part if text] for part in texts]
