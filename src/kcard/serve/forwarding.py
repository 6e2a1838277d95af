"""A conversation that the LLM's own server continues, with what cards know put before it."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from kcard.request import Reply
from kcard.serve.answers import sse, trace_headers, usage_of
from kcard.serve.asking import Ask
from kcard.serve.errors import ApiError, body
from kcard.serve.knowledge import with_knowledge
from kcard.serve.pending import Pending
from kcard.serve.routes import Route
from kcard.serve.schema import ChatRequest
from kcard.serve.upstream import Upstream

__all__ = ["Forwarding"]


class Forwarding:
    """One request on its way to the LLM's server and back; all of its parameters but the model's name are kept.

    pending  the question with its passages; None where the user's last turn is no text, such as an image: then the
             request passes without knowledge and trace
    """

    def __init__(
        self, asking: Ask, upstream: Upstream, asked: ChatRequest, route: Route, pending: Pending | None
    ) -> None:
        self._asking, self._upstream, self._asked, self._route = asking, upstream, asked, route
        self._pending, self._knowledge = pending, pending.knowledge if pending else ()
        self.headers = {} if pending is None else _headers(pending)
        self._started = time.perf_counter()

    async def completion(self) -> dict[str, Any]:
        """The server's response with the field `kcard`."""
        try:
            response = await self._upstream.complete(self._payload())
            text = _text(response["choices"][0]["message"].get("content"))
            return {
                **response,
                "model": self._asked.model,
                **await self._trace(text, response.get("usage")),
            }
        finally:
            self._close()

    async def events(self) -> AsyncIterator[str]:
        """The server's chunks; the field `kcard` comes with one more, without choices, at their end.

        Raises what Upstream raises before the first chunk; later, an event tells of the error.
        """
        events = self._relayed()
        first = await self._asking.while_connected(anext(events))
        return _joined(first, events)

    async def _relayed(self) -> AsyncGenerator[str, None]:
        said, usage, last, begun = "", None, None, False
        try:
            async with aclosing(self._upstream.stream(self._payload(include_usage=True))) as chunks:
                async for chunk in chunks:
                    last, usage = chunk, chunk.get("usage") or usage
                    choices = chunk.get("choices") or []
                    said += "".join(_text((choice.get("delta") or {}).get("content")) for choice in choices)
                    if choices or self._asked.include_usage:
                        yield sse({**chunk, "model": self._asked.model})
                        begun = True
            if trace := await self._trace(said, usage):
                yield sse({**(last or {}), "usage": None, "model": self._asked.model, "choices": [], **trace})
            yield sse(None)
        except ApiError as error:
            if not begun:
                raise
            yield sse(body(error))
        finally:
            self._close()

    def _payload(self, include_usage: bool = False) -> dict[str, Any]:
        given = self._asked.model_dump(exclude_unset=True)
        given["messages"] = with_knowledge(self._asked.messages, self._knowledge)
        return {**given, "stream_options": {"include_usage": True}} if include_usage else given

    async def _trace(self, text: str, usage: Any) -> dict[str, Any]:
        """The field `kcard`; nothing where no question was prepared."""
        used = usage if isinstance(usage, dict) else {}
        read, wrote = used.get("prompt_tokens"), used.get("completion_tokens")
        if self._pending is None:
            counted = {"prompt_tokens": read or 0, "completion_tokens": wrote or 0}
            self._asking.count(self._route, {**counted, "total_tokens": sum(counted.values())})
            return {}
        seconds = time.perf_counter() - self._started
        found = await self._asking.service.complete(self._pending, Reply(text, None, read, wrote), seconds)
        self._pending = None
        self._asking.count(self._route, usage_of(found))
        return {"kcard": found.to_json()}

    def _close(self) -> None:
        """The client may leave, and the server fail, before the end."""
        if self._pending is not None:
            self._asking.service.abandon(self._pending)


async def _joined(first: str, rest: AsyncIterator[str]) -> AsyncGenerator[str, None]:
    yield first
    async for event in rest:
        yield event


def _headers(pending: Pending) -> dict[str, str]:
    prepared = pending.prepared
    return trace_headers((p.card for p in prepared.gathered.passages), prepared.decision.fired)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else ""
