"""The LLM behind the endpoint where it is an OpenAI-compatible server itself: whole conversations go there."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx

from kcard.serve.errors import ApiError, LLMFailed, TimedOut

__all__ = ["Upstream"]

Path = Literal["chat/completions", "completions"]
PASSED_ON = range(400, 500)  # what a client did wrong, the LLM's server says best
OURS = {401, 403, 404, 407}  # of these the endpoint's owner is to blame
LONGEST = 500  # characters of its messages


class Upstream:
    """Chat completions of `model` at `url`, and completions. `timeout`: seconds without a byte.

    Raises ApiError where the server refuses a request, LLMFailed where it fails, TimedOut.
    """

    def __init__(self, url: str, model: str, key: str | None = None, timeout: float = 60.0) -> None:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.model, self._url = model, url.rstrip("/")
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout)

    async def complete(self, request: dict[str, Any], path: Path = "chat/completions") -> dict[str, Any]:
        """The response, whole."""
        async with self._sent(request | {"stream": False}, path) as response:
            try:
                found = _decoded(await response.aread())
                choice = found["choices"][0]  # a page of a proxy, say, has none
                choice["text"] if path == "completions" else choice["message"]["role"]
            except (ValueError, LookupError, TypeError):
                kind = path.removesuffix("s").replace("/", " ")
                raise LLMFailed(f"the LLM behind this endpoint sent no {kind}") from None
        return dict(found)

    async def stream(
        self, request: dict[str, Any], path: Path = "chat/completions"
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of the response as they arrive."""
        ended = False
        async with self._sent(request | {"stream": True}, path) as response:
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:"):
                    continue
                if data == "[DONE]":
                    ended = True
                    break
                try:
                    chunk = _decoded(data)
                except ValueError:
                    raise LLMFailed("the LLM behind this endpoint sent a broken stream") from None
                if isinstance(chunk, dict):
                    yield chunk
        if not ended:
            raise LLMFailed("the LLM behind this endpoint broke off in the middle of its answer")

    async def close(self) -> None:
        await self._client.aclose()

    @asynccontextmanager
    async def _sent(self, request: dict[str, Any], path: Path) -> AsyncIterator[httpx.Response]:
        content = _encoded(request | {"model": self.model})
        try:
            async with self._client.stream("POST", f"{self._url}/{path}", content=content) as response:
                if response.is_error:
                    raise _refusal(response.status_code, await response.aread())
                yield response
        except httpx.TimeoutException:
            raise TimedOut("the LLM behind this endpoint took too long", retry_after=5) from None
        except httpx.HTTPError:
            raise LLMFailed("the LLM behind this endpoint can't be reached", retry_after=5) from None


def _encoded(request: dict[str, Any]) -> bytes:
    try:
        return json.dumps(request, allow_nan=False).encode()
    except ValueError as error:  # NaN, say, which Python's parser takes
        raise ApiError(f"the request can't be passed on as JSON: {error}") from None


def _decoded(content: str | bytes) -> Any:
    """JSON, with null for NaN and infinite numbers, which it does not have; some servers send them."""
    return json.loads(content, parse_constant=lambda _: None)


def _refusal(status: int, body: bytes) -> ApiError:
    try:
        message = str(json.loads(body)["error"]["message"])[:LONGEST]
    except (ValueError, LookupError, TypeError):
        message = f"status {status}"
    if status == 429:
        error: ApiError = LLMFailed("the LLM behind this endpoint has too many requests", retry_after=5)
        error.status = 503
        return error
    if status in PASSED_ON and status not in OURS:
        return ApiError(f"the LLM behind this endpoint refused the request: {message}")
    return LLMFailed(f"the LLM behind this endpoint failed with status {status}", retry_after=5)
