"""Several texts of the LLM's own, drawn for one request."""

from dataclasses import dataclass, replace

from kcard.answer import Passage
from kcard.protocols import LLM
from kcard.request import Example, Request

__all__ = ["Drawn"]


@dataclass(frozen=True)
class Drawn:
    """`samples` replies to one request, drawn at `temperature`; empty ones are left out, equal ones stay.

    request  without question and examples
    """

    name: str
    request: Request
    samples: int
    temperature: float

    def passages(self, llm: LLM, question: str, examples: tuple[Example, ...]) -> list[Passage]:
        wanted = replace(self.request, question=question, examples=examples, temperature=self.temperature)
        texts = [llm.reply(replace(wanted, sample=n)).text.strip() for n in range(self.samples)]
        return [Passage(self.name, text) for text in texts if text]
