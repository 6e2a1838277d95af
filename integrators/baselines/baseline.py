"""A baseline: gathers passages for a question, lets the LLM read them, and settles on an answer."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kcard.answer import Answer, Decision, Passage
from kcard.errors import LLMError, QuestionsFailed
from kcard.integrators.metered import Metered
from kcard.protocols import LLM
from kcard.question import Question, checked, distinct_texts
from kcard.request import Example, Reply, Request

__all__ = ["Baseline", "KnowledgeSource", "Reading"]

ALWAYS = Decision("always", 0.0, True)


class KnowledgeSource(Protocol):
    def passages(
        self, llm: LLM, questions: Sequence[str], examples: tuple[Example, ...]
    ) -> list[list[Passage]]:
        """For each question what the LLM may read, best first; empty where nothing was found or said."""
        ...


class Reading(Protocol):
    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        """The answer to each request, which comes without knowledge, from its passages."""
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
        for outcome in self.outcomes(questions):
            if isinstance(outcome, LLMError):
                raise outcome
            yield outcome

    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | LLMError]:
        """One Answer a question, in order, or why the LLM gave none: a failure costs only its own question.

        Requests about all questions are made together, as many at a time as the LLM takes.
        """
        for part in distinct_texts(map(checked, questions)):
            for question in part:
                self.llm.open(question)
            failed: dict[str, LLMError] = {}
            answers: Iterator[Answer] = iter(())
            while ready := [question for question in part if question.text not in failed]:
                try:
                    answers = iter(self._answered(ready))
                    break
                except QuestionsFailed as error:  # the others are asked again, from replies that are kept
                    failed.update(error.failures)
            yield from (failed[q.text] if q.text in failed else next(answers) for q in part)

    def _answered(self, questions: Sequence[Question]) -> list[Answer]:
        """Raises QuestionsFailed. No two questions have the same text."""
        started = time.perf_counter()
        texts = [question.text for question in questions]
        passages = self.source.passages(self.llm, texts, self.examples)
        requests = [Request("answer", q.text, (), self.examples, q.choices) for q in questions]
        replies = self.reading.replies(self.llm, requests, passages)
        seconds = (time.perf_counter() - started) / len(questions)
        rows = zip(questions, passages, replies, strict=True)
        return [self._answer(question, found, reply, seconds) for question, found, reply in rows]

    def _answer(
        self, question: Question, passages: Sequence[Passage], reply: Reply, seconds: float
    ) -> Answer:
        chosen = {choice.name: choice.description for choice in question.choices}
        account = self.llm.close(question.text)
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
