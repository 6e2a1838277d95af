"""What the endpoint answers with: pipelines by route, batches of questions, and the LLM's own server."""

import asyncio
from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol

from kcard.answer import Answer
from kcard.errors import LLMError
from kcard.integrators.options import Mode
from kcard.request import Reply
from kcard.serve.answer_cache import AnswerCache, Answered
from kcard.serve.batcher import Batcher
from kcard.serve.pending import Pending
from kcard.serve.routes import Route, names, route_of
from kcard.serve.upstream import Upstream

__all__ = ["Answering", "Service"]


class Answering(Protocol):
    """Answers questions by route, in one thread at a time."""

    @property
    def llm(self) -> str:
        """The name under which the LLM is served."""
        ...

    def cards(self) -> Sequence[str]:
        """The names of the cards that can be asked now; called from other threads too."""
        ...

    def answers(self, route: Route, questions: Sequence[str]) -> Iterator[Answer | LLMError]: ...

    def prepared(self, route: Route, questions: Sequence[str]) -> Iterator[Pending | LLMError]: ...

    def version(self) -> Hashable | None:
        """What answers depend on beside route and question, such as the cards; None where they depend on more than can
        be told. Called from other threads too."""
        ...


class Service:
    """The models of the endpoint.

    Args:
        answering: what answers
        mode: of questions to the LLM's own name
        upstream: the LLM's server, if it takes whole conversations; None: the LLM is asked single questions
        waiting: questions that may wait
        timeout: seconds that a question may take, with its wait
        cache: answers that are kept for equal questions
    """

    def __init__(
        self,
        answering: Answering,
        mode: Mode,
        upstream: Upstream | None = None,
        waiting: int = 256,
        timeout: float = 120.0,
        cache: int = 0,
    ) -> None:
        self._cache = AnswerCache(cache)
        self._answering, self._mode, self._timeout = answering, mode, timeout
        self.upstream = upstream
        self._answers: Batcher[Route, Answer | Pending | LLMError] = Batcher(
            answering.prepared if upstream else answering.answers, waiting=waiting, dropped=_abandon
        )

    @property
    def waiting(self) -> int:
        """Questions that wait."""
        return len(self._answers)

    async def models(self) -> list[str]:
        cards = await asyncio.to_thread(self._answering.cards)
        return list(names(self._answering.llm, cards))

    async def route(self, model: str) -> Route:
        """Raises NoSuchModel."""
        cards = await asyncio.to_thread(self._answering.cards) if ":" in model else ()
        return route_of(model, self._answering.llm, self._mode, cards)

    async def answer(self, route: Route, question: str) -> Answered:
        """The answer of an LLM that is asked single questions.

        Raises Busy, TimeoutError, and what a pipeline raises.
        """

        async def found() -> Answer:
            answer = await self._submitted(route, question)
            assert isinstance(answer, Answer)
            return answer

        async with asyncio.timeout(self._timeout):
            if await self._version() is None:
                return Answered(await found())
            return await self._cache.get(self._version, (route, question), found)

    async def prepare(self, route: Route, questions: Sequence[str]) -> list[Pending]:
        """The questions with what the LLM is to read that takes whole conversations. Raises what `answer` raises."""
        tasks = [asyncio.ensure_future(self._submitted(route, question)) for question in questions]
        try:
            async with asyncio.timeout(self._timeout):
                found = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
                task.add_done_callback(self._forget)
            raise
        return [pending for pending in found if isinstance(pending, Pending)]

    def _forget(self, task: "asyncio.Task[Answer | Pending]") -> None:
        """The other questions of a request that failed, which may have been prepared."""
        if task.cancelled() or task.exception() is not None:
            return
        if isinstance(found := task.result(), Pending):
            self.abandon(found)

    async def _submitted(self, route: Route, question: str) -> Answer | Pending:
        found = await self._answers.submit(route, question)
        if isinstance(found, LLMError):
            raise found
        return found

    async def _version(self) -> Hashable | None:
        return await asyncio.to_thread(self._answering.version)

    async def complete(self, pending: Pending, reply: Reply, seconds: float) -> Answer:
        """The answer with its citations."""
        return await self._answers.call(pending.complete, reply, seconds)

    def abandon(self, pending: Pending) -> None:
        """Forget a question that will not be completed."""
        self._answers.post(pending.abandon)

    async def close(self) -> None:
        self._answers.close()
        if self.upstream is not None:
            await self.upstream.close()


def _abandon(found: Answer | Pending | LLMError) -> None:
    """Whoever asked has left."""
    if isinstance(found, Pending):
        found.abandon()
