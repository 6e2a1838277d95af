"""A conversation that the LLM's own server continues, with what cards know put before it."""

import time
from collections.abc import AsyncIterator
from typing import Any

from kcard.integrators.pipeline import Prepared
from kcard.request import Reply
from kcard.serve.answers import sse, trace_headers
from kcard.serve.asking import Ask
from kcard.serve.errors import ApiError, body
from kcard.serve.knowledge import with_knowledge
from kcard.serve.routes import Route
from kcard.serve.schema import ChatRequest
from kcard.serve.upstream import Upstream

__all__ = ["Forwarding"]


class Forwarding:
    """One request on its way to the LLM's server and back; all of its parameters but the model's name are kept."""

    def __init__(
        self,
        asking: Ask,
        upstream: Upstream,
        asked: ChatRequest,
        route: Route,
        question: str,
        prepared: Prepared,
    ) -> None:
        self._asking, self._upstream, self._asked = asking, upstream, asked
        self._route, self._question, self._prepared = route, question, prepared
        self._started, self._completed = time.perf_counter(), False

    @property
    def headers(self) -> dict[str, str]:
        passages = self._prepared.gathered.passages
        return trace_headers((passage.card for passage in passages), self._prepared.decision.fired)

    async def completion(self) -> dict[str, Any]:
        """The server's response with the field `kcard`."""
        response = await self._upstream.complete(self._payload())
        text = response["choices"][0]["message"].get("content") or ""
        return {
            **response,
            "model": self._asked.model,
            "kcard": await self._trace(text, response.get("usage")),
        }

    async def events(self) -> AsyncIterator[str]:
        """The server's chunks; the field `kcard` comes with one more, without choices, at their end.

        Raises what Upstream raises before the first chunk; later, an event tells of the error.
        """
        chunks = self._upstream.stream(self._payload(include_usage=True))
        try:
            first = await self._asking.while_connected(anext(chunks, None))
        except BaseException:
            self._close()
            raise
        return self._relayed(first, chunks)

    async def _relayed(
        self, first: dict[str, Any] | None, chunks: AsyncIterator[dict[str, Any]]
    ) -> AsyncIterator[str]:
        said, usage, head = "", None, first or {}
        try:
            chunk = first
            while chunk is not None:
                usage = chunk.get("usage") or usage
                choices = chunk.get("choices") or []
                said += "".join((choice.get("delta") or {}).get("content") or "" for choice in choices)
                if choices or self._asked.include_usage:
                    yield sse({**chunk, "model": self._asked.model})
                chunk = await anext(chunks, None)
            trace = await self._trace(said, usage)
            yield sse({**head, "model": self._asked.model, "choices": [], "kcard": trace})
            yield sse(None)
        except ApiError as error:
            yield sse(body(error))
        finally:
            self._close()

    def _close(self) -> None:
        """The client may leave before the end."""
        if not self._completed:
            self._asking.service.abandon(self._route, self._question)

    def _payload(self, include_usage: bool = False) -> dict[str, Any]:
        given = self._asked.model_dump(exclude_unset=True)
        given["messages"] = with_knowledge(self._asked.messages, self._prepared.gathered.knowledge)
        return {**given, "stream_options": {"include_usage": True}} if include_usage else given

    async def _trace(self, text: str, usage: Any) -> dict[str, Any]:
        used = usage if isinstance(usage, dict) else {}
        reply = Reply(text, None, used.get("prompt_tokens"), used.get("completion_tokens"))
        seconds = time.perf_counter() - self._started
        found = await self._asking.complete(self._route, self._question, self._prepared, reply, seconds)
        self._completed = True
        return found.to_json()
