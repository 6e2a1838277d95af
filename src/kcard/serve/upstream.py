"""The client of the LLM's own server, which takes whole conversations."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx

from kcard.connections import THIS_MACHINE, UNCOMPRESSED_HEADERS, UnreadableReply, limit_reply_async
from kcard.serve.schema import ApiError, LLMFailed, TimedOut

ApiPath = Literal["chat/completions", "completions"]
PASSED_ON = range(400, 500)  # a client's mistakes, which the LLM's server explains best
OURS = {401, 403, 404, 407}  # except these, which the endpoint's owner has to mend
MAX_MESSAGE_CHARACTERS = 500


class Upstream:
    """Client for (chat) completions of `model` at `url`.

    timeout   seconds without a byte
    defaults  parameters of requests that leave them out

    Raises ApiError where the server refuses a request, LLMFailed where it fails, TimedOut.
    """

    def __init__(
        self,
        url: str,
        model: str,
        key: str | None = None,
        timeout: float = 60.0,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        headers = {"Content-Type": "application/json", **UNCOMPRESSED_HEADERS}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self.model, self._url, self._defaults = model, url.rstrip("/"), dict(defaults or {})
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=timeout,
            event_hooks={"response": [limit_reply_async]},
            mounts=dict.fromkeys(THIS_MACHINE),
        )

    async def complete(self, request: dict[str, Any], path: ApiPath = "chat/completions") -> dict[str, Any]:
        """Return the whole response."""
        async with self._send(request | {"stream": False}, path) as response:
            body = await response.aread()
            try:
                content = _decode(body)
                choice = content["choices"][0]  # a page of a proxy, say, has none
                choice["text"] if path == "completions" else choice["message"]["role"]
            except (ValueError, LookupError, TypeError, RecursionError):
                kind = path.removesuffix("s").replace("/", " ")
                raise LLMFailed(f"the LLM behind this endpoint sent no {kind}") from None
        return dict(content)

    async def stream(
        self, request: dict[str, Any], path: ApiPath = "chat/completions"
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the chunks of the response as they arrive; it is whole if it says so, or if a choice is finished."""
        ended = False
        async with self._send(request | {"stream": True}, path) as response:
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:"):
                    continue
                if data == "[DONE]":
                    ended = True
                    break
                try:
                    chunk = _decode(data)
                except (ValueError, RecursionError):
                    raise LLMFailed("the LLM behind this endpoint sent a broken stream") from None
                if not isinstance(chunk, dict):
                    continue
                if chunk.get("error"):
                    raise LLMFailed(f"the LLM behind this endpoint failed: {_message_of(chunk['error'])}")
                ended = ended or _is_finished(chunk)
                yield chunk
        if not ended:
            raise LLMFailed("the LLM behind this endpoint broke off in the middle of its answer")

    async def close(self) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def _send(self, request: dict[str, Any], path: ApiPath) -> AsyncIterator[httpx.Response]:
        try:
            body = self._defaults | request | {"model": self.model}
            content = json.dumps(body, allow_nan=False).encode()
        except ValueError as error:  # NaN, say, which Python's parser takes
            raise ApiError(f"the request can't be passed on as JSON: {error}") from None
        try:
            async with self._client.stream("POST", f"{self._url}/{path}", content=content) as response:
                if response.is_error:
                    raise _upstream_error(response.status_code, await response.aread())
                yield response
        except httpx.TimeoutException:
            raise TimedOut("the LLM behind this endpoint took too long", retry_after=5) from None
        except UnreadableReply as error:
            raise LLMFailed(f"the LLM behind this endpoint can't be read: {error}") from None
        except httpx.HTTPError:
            raise LLMFailed("the LLM behind this endpoint can't be reached", retry_after=5) from None


def _decode(content: str | bytes) -> Any:
    """Decode JSON, with null for NaN and infinite numbers, which are not JSON and which some servers send."""
    return json.loads(content, parse_constant=lambda _: None)


def _message_of(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message).split())[:MAX_MESSAGE_CHARACTERS]


def _is_finished(chunk: Mapping[str, Any]) -> bool:
    """Return whether a choice ends with this chunk."""
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return False
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _upstream_error(status: int, body: bytes) -> ApiError:
    """Return the error for a response of the LLM's server that is not a success."""
    try:
        message = str(json.loads(body)["error"]["message"])[:MAX_MESSAGE_CHARACTERS]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = f"status {status}"
    if status == 429:
        error: ApiError = LLMFailed("the LLM behind this endpoint has too many requests", retry_after=5)
        error.status = 503
        return error
    if status in PASSED_ON and status not in OURS:
        return ApiError(f"the LLM behind this endpoint refused the request: {message}")
    return LLMFailed(f"the LLM behind this endpoint failed with status {status}", retry_after=5)
