"""A request that the LLM's own server answers, with what cards know put before its questions."""

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from starlette.responses import Response, StreamingResponse

from kcard.request import Reply
from kcard.serve.answers import encoded, sse, trace_headers, usage_of
from kcard.serve.asking import Ask
from kcard.serve.errors import ApiError, body
from kcard.serve.forwarded import Forwarded
from kcard.serve.pending import Pending
from kcard.serve.routes import Route
from kcard.serve.upstream import Upstream

__all__ = ["Forwarding"]


class Forwarding:
    """One request on its way to the LLM's server and back; all of its parameters but the model's name are kept.

    pendings  its questions with their passages; none where the user's last turn is no text, such as an image: then the
              request passes without knowledge and trace
    """

    def __init__(
        self, asking: Ask, upstream: Upstream, request: Forwarded, route: Route, pendings: Sequence[Pending]
    ) -> None:
        self._asking, self._upstream, self._request, self._route = asking, upstream, request, route
        self._model, self._known = request.asked.model, [pending.knowledge for pending in pendings]
        self._pendings = list(pendings)  # that have not ended
        self._headers = _headers(pendings) if pendings else {}
        self._started = time.perf_counter()

    async def response(self) -> Response:
        """The server's response, streamed where that was asked for. Raises what Upstream raises."""
        if self._request.asked.stream:
            return StreamingResponse(
                await self._events(), media_type="text/event-stream", headers=self._headers
            )
        whole = await self._asking.while_connected(self._whole())
        return Response(encoded(whole), media_type="application/json", headers=self._headers)

    async def _whole(self) -> dict[str, Any]:
        """The server's response with the field `kcard`."""
        try:
            response = await self._upstream.complete(self._request.payload(self._known), self._request.path)
            said = {at: self._request.text(choice) for at, choice in _numbered(response)}
            return {**response, "model": self._model, **await self._trace(said, response.get("usage"))}
        finally:
            self._close()

    async def _events(self) -> AsyncIterator[bytes]:
        """The server's chunks; the field `kcard` comes with one more, without choices, at their end.

        Raises what Upstream raises before the first chunk; later, an event tells of the error.
        """
        events = self._relayed()
        first = await self._asking.while_connected(anext(events))
        return _joined(first, events)

    async def _relayed(self) -> AsyncGenerator[bytes, None]:
        said: defaultdict[int, str] = defaultdict(str)
        usage, last, begun = None, None, False
        payload = self._request.payload(self._known) | {"stream_options": {"include_usage": True}}
        try:
            async with aclosing(self._upstream.stream(payload, self._request.path)) as chunks:
                async for chunk in chunks:
                    last, usage = chunk, chunk.get("usage") or usage
                    for at, choice in _numbered(chunk):
                        said[at] += self._request.text(choice)
                    if chunk.get("choices") or self._request.asked.include_usage:
                        yield sse({**chunk, "model": self._model})
                        begun = True
            if trace := await self._trace(said, usage):
                yield sse({**(last or {}), "usage": None, "model": self._model, "choices": [], **trace})
            yield sse(None)
        except ApiError as error:
            if not begun:
                raise
            yield sse(body(error))
        finally:
            self._close()

    async def _trace(self, said: Mapping[int, str], usage: Any) -> dict[str, Any]:
        """The field `kcard`; nothing where no question was prepared."""
        used = usage if isinstance(usage, dict) else {}
        tokens = used.get("prompt_tokens"), used.get("completion_tokens")
        if not self._pendings:
            self._count([{"prompt_tokens": tokens[0] or 0, "completion_tokens": tokens[1] or 0}])
            return {}
        seconds = (time.perf_counter() - self._started) / len(self._pendings)
        answers = []
        for at in range(len(self._pendings)):
            # The server counts the tokens of all prompts together: they are those of the first.
            read, wrote = (count if not at or count is None else 0 for count in tokens)
            reply = Reply(said.get(at, ""), None, read, wrote)
            answers.append(await self._asking.service.complete(self._pendings[0], reply, seconds))
            del self._pendings[0]
        self._count([usage_of(answer) for answer in answers])
        return {"kcard": self._request.trace([answer.to_json() for answer in answers])}

    def _count(self, used: Sequence[Mapping[str, int]]) -> None:
        read, wrote = (sum(one[kind] for one in used) for kind in ("prompt_tokens", "completion_tokens"))
        self._asking.count(
            self._route, {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}
        )

    def _close(self) -> None:
        """The client may leave, and the server fail, before the end."""
        for pending in self._pendings:
            self._asking.service.abandon(pending)
        self._pendings = []


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    yield first
    async for event in rest:
        yield event


def _numbered(response: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """The choices with the numbers of their questions."""
    return [(int(choice.get("index") or 0), choice) for choice in response.get("choices") or []]


def _headers(pendings: Sequence[Pending]) -> dict[str, str]:
    prepared = [pending.prepared for pending in pendings]
    cards = (passage.card for found in prepared for passage in found.gathered.passages)
    return trace_headers(cards, any(found.decision.fired for found in prepared))
