"""A baseline: gathers passages for a question, lets the LLM read them, and settles on an answer."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kcard.answer import Answer, Decision, Passage
from kcard.integrators.metered import Metered
from kcard.protocols import LLM
from kcard.question import Question, checked
from kcard.request import Example, Reply, Request

__all__ = ["Baseline", "KnowledgeSource", "Reading"]

ALWAYS = Decision("always", 0.0, True)


class KnowledgeSource(Protocol):
    def passages(self, llm: LLM, question: str, examples: tuple[Example, ...]) -> list[Passage]:
        """What the LLM may read, best first; empty where nothing was found or said."""
        ...


class Reading(Protocol):
    def reply(self, llm: LLM, request: Request, passages: Sequence[Passage]) -> Reply:
        """The answer to the request, which comes without knowledge, from the passages."""
        ...


@dataclass(frozen=True)
class Baseline:
    """An Answerer, whose every question goes to the source. `examples`: demonstrations where a question has no own."""

    name: str
    llm: Metered
    source: KnowledgeSource
    reading: Reading
    examples: tuple[Example, ...] = ()

    def answers(self, questions: Sequence[str | Question]) -> Iterator[Answer]:
        """See Answerer; after an LLMError the replies that the LLM gave are not asked for twice."""
        for question in questions:
            yield self._answer(checked(question))

    def _answer(self, question: Question) -> Answer:
        started = time.perf_counter()
        self.llm.open(question)
        passages = self.source.passages(self.llm, question.text, self.examples)
        reply = self.reading.reply(self.llm, Request("answer", question.text, (), self.examples), passages)
        chosen = {choice.name: choice.description for choice in question.choices}
        account, seconds = self.llm.close(question.text), time.perf_counter() - started
        return Answer(
            question=question.text,
            answer=chosen.get(reply.choice or "", reply.text).strip(),
            mode=self.name,
            gate=ALWAYS,
            cards=tuple(dict.fromkeys(p.card for p in passages)),
            passages=tuple(replace(p, kept=True) for p in passages),
            calls=account.calls,
            seconds=seconds,
            notes=account.notes,
            confidence=reply.confidence,
            choice=reply.choice,
            usage=account.usage(max(seconds - account.seconds, 0.0)),
        )
