"""How endpoints ask: the key of a request is checked, the question answered, and its tokens counted."""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from kcard.serve.answer_cache import Answered
from kcard.serve.answers import NOTHING, usage_of
from kcard.serve.keys import Keys
from kcard.serve.metrics import Metrics
from kcard.serve.pending import Pending
from kcard.serve.routes import Route
from kcard.serve.service import Service

__all__ = ["Ask", "Asking", "key_holder"]

POLL = 0.5  # seconds
Found = TypeVar("Found")


def key_holder(request: Request) -> str:
    """Return whose key the request carries. Raises Unauthorized."""
    keys: Keys = request.app.state.keys
    return keys.check(request.headers.get("authorization"))


class Ask:
    """Asks for whoever holds a key, until the client leaves. Raises what Service raises, CancelledError then."""

    def __init__(self, request: Request, _: Annotated[str, Depends(key_holder)]) -> None:
        self._request = request
        state = request.app.state
        self.service: Service = state.service
        self._metrics: Metrics = state.metrics
        self._started = time.perf_counter()

    async def answer(self, route: Route, question: str) -> Answered:
        """The answer of an LLM that is asked single questions. One that was there already costs no tokens."""
        found = await self.while_connected(self.service.answer(route, question))
        self.count(route, NOTHING if found.cached else usage_of(found.answer), cached=found.cached)
        return found

    async def prepare(self, route: Route, questions: Sequence[str]) -> list[Pending]:
        """Each question with what the LLM is to read that takes whole conversations; all of them or none."""
        return await self.while_connected(self.service.prepare(route, questions))

    async def while_connected(self, work: Awaitable[Found]) -> Found:
        """The result of the work, which is cancelled when the client leaves."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=POLL))[0]:
                if await self._request.is_disconnected():
                    task.cancel()
            return await task
        finally:
            task.cancel()

    def count(self, route: Route, usage: Mapping[str, int], *, cached: bool = False) -> None:
        """Count the tokens of an answered question, and its time."""
        self._metrics.answered(route.mode, time.perf_counter() - self._started, usage, cached=cached)


Asking = Annotated[Ask, Depends()]
