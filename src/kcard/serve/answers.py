"""Answers in the format of OpenAI's API, their metrics, and the dependency through which routes get them."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.responses import Response, StreamingResponse

from kcard.display import warning_of
from kcard.hub.server.limits import is_this_machine
from kcard.serve.auth import Keys
from kcard.serve.pipelines import PendingQuestion, Route
from kcard.serve.schema import ChatRequest, CompletionRequest, Disconnected
from kcard.serve.service import ServedAnswer, Service
from kcard.types import Answer

# Counters of the endpoint for Prometheus.

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)


class EndpointMetrics:
    """Counters, and a gauge that calls `waiting` for the number of waiting questions."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "kcard_answer_seconds",
            "Time of a question, with its wait.",
            ["mode"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter("kcard_llm_tokens", "Tokens of the LLM.", ["kind"], registry=self._registry)
        self._errors = Counter(
            "kcard_errors", "Requests that were not answered.", ["code"], registry=self._registry
        )
        self._cached = Counter(
            "kcard_cached_answers", "Answers that were there already.", registry=self._registry
        )
        gauge = Gauge("kcard_waiting_questions", "Questions that wait.", registry=self._registry)
        gauge.set_function(waiting)

    def answered(self, mode: str, seconds: float, usage: Mapping[str, int], *, cached: bool) -> None:
        self._seconds.labels(mode).observe(seconds)
        self._tokens.labels("prompt").inc(usage["prompt_tokens"])
        self._tokens.labels("completion").inc(usage["completion_tokens"])
        self._cached.inc(cached)

    def failed(self, code: str) -> None:
        self._errors.labels(code).inc()

    def exposed(self) -> tuple[bytes, str]:
        """Return the counters as text, and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def usage_of(answer: Answer) -> dict[str, int]:
    """Return the LLM's tokens; 0 where the LLM does not count them."""
    read, wrote = 0, 0
    if answer.usage is not None:
        read, wrote = answer.usage.tokens_in or 0, answer.usage.tokens_out or 0
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def with_warning(text: str, answer: Answer) -> str:
    """Return a text with a line on what the cards do not support, for clients that read no further fields."""
    return "\n\n".join(filter(None, (text, warning_of(answer))))


def chat_completion(chat: ChatRequest, answer: Answer) -> dict[str, Any]:
    text, finish = chat.cut(answer.answer)
    message = {"role": "assistant", "content": with_warning(text, answer)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {
        **_head("chatcmpl", "chat.completion", chat.model),
        "choices": [choice],
        "usage": usage_of(answer),
        "kcard": answer.to_json(),
    }


def chat_chunks(chat: ChatRequest, answer: Answer, *, warns: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the answer as chunks of a stream; the last one that has a choice carries the field `kcard`.

    warns  whether the text says what the cards do not support
    """
    head = _head("chatcmpl", "chat.completion.chunk", chat.model)

    def chunk(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    text, finish = chat.cut(answer.answer)
    if warns:
        text = with_warning(text, answer)
    yield chunk({"role": "assistant", "content": ""})
    yield chunk({"content": text})
    yield {**chunk({}, finish), "kcard": answer.to_json()}
    if chat.include_usage:
        yield {**head, "choices": [], "usage": usage_of(answer)}


def completion(request: CompletionRequest, answers: Sequence[Answer]) -> dict[str, Any]:
    usages = [usage_of(answer) for answer in answers]
    choices = []
    for at, answer in enumerate(answers):
        text, finish = request.cut(answer.answer)
        choices.append({"index": at, "text": text, "logprobs": None, "finish_reason": finish})
    return {
        **_head("cmpl", "text_completion", request.model),
        "choices": choices,
        "usage": {name: sum(usage[name] for usage in usages) for name in usages[0]},
        "kcard": [answer.to_json() for answer in answers],
    }


def headers(*served: ServedAnswer) -> dict[str, str]:
    """Return the trace headers of a response; they say so where all of its answers come from the cache."""
    answers = [one.answer for one in served]
    cards = (card for answer in answers for card in answer.cards)
    trace = trace_headers(cards, any(answer.gate.fired for answer in answers))
    if all(one.cached for one in served):
        trace["X-Kcard-Cache"] = "hit"
    return trace


def trace_headers(cards: Iterable[str], fired: bool) -> dict[str, str]:
    """Return the cards used and the gate's decision as headers, for clients that read no further fields."""
    return {"X-Kcard-Cards": ",".join(dict.fromkeys(cards)), "X-Kcard-Gate": "cards" if fired else "no cards"}


def encode_json(content: Any) -> bytes:
    """Encode JSON. Unpaired surrogates, which an LLM's server may send and UTF-8 does not have, become "?"."""
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def sse(chunk: dict[str, Any] | None) -> bytes:
    """Return a server-sent event; for None, the one that ends the stream."""
    return b"data: [DONE]\n\n" if chunk is None else b"data: " + encode_json(chunk) + b"\n\n"


# The stages of the work on an answer, which our page shows while it waits.

STAGES = "X-Kcard-Stages"  # header of a request whose stream is to have them
ReportStage = Callable[[Mapping[str, Any]], None]


async def stream_with_stages(
    answer: Callable[[ReportStage], Awaitable[Response]],
    error_event: Callable[[Exception], bytes],
) -> AsyncIterator[bytes]:
    """Yield the events of a streamed answer, and among them {"kcard_stage": ...} as soon as each stage begins.

    Since the stream begins before the work does, an error becomes an event.
    """
    events: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def work() -> None:
        try:
            response = await answer(lambda stage: events.put_nowait(sse({"kcard_stage": dict(stage)})))
            assert isinstance(response, StreamingResponse)
            async for event in response.body_iterator:
                events.put_nowait(event.encode() if isinstance(event, str) else bytes(event))
        except Exception as error:  # noqa: BLE001
            events.put_nowait(error_event(error))
        events.put_nowait(None)

    task = asyncio.create_task(work())
    try:
        while True:
            event = await events.get()
            if event is None:
                return
            yield event
    finally:
        task.cancel()


def _head(prefix: str, kind: str, model: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }


# What the routes depend on: it checks the key of a request, answers its questions and counts the tokens.

POLL = 0.5  # seconds
Result = TypeVar("Result")


def key_holder(request: Request) -> str:
    """Return whose key the request carries. Raises Unauthorized."""
    keys: Keys = request.app.state.keys
    return keys.check(request.headers.get("authorization"))


def uploader_of(request: Request, holder: Annotated[str, Depends(key_holder)]) -> str | None:
    """Return whose uploaded files the request may ask and add to; None: nobody's. Raises Unauthorized.

    Where no key is needed, those are requests from this machine, without a proxy that says otherwise.
    """
    keys: Keys = request.app.state.keys
    return holder if keys.is_needed or is_this_machine(request.scope) else None


Uploader = Annotated[str | None, Depends(uploader_of)]


class RequestHandler:
    """Answers the questions of one request, which needs a valid key.

    Raises what Service raises, and Disconnected when the client disconnects.
    """

    def __init__(self, request: Request, uploader: Uploader) -> None:
        self._request, self._uploader = request, uploader
        state = request.app.state
        self.service: Service = state.service
        self._metrics: EndpointMetrics = state.metrics
        self._started = time.perf_counter()

    @property
    def is_of_page(self) -> bool:
        """Whether our page asks, which shows the verdict on each sentence."""
        return STAGES in self._request.headers

    async def route(self, model: str) -> Route:
        """Return the route of a model: one of all clients, or a file of this one. Raises NoSuchModel."""
        return await self.service.route(model, self._uploader)

    async def answer(self, route: Route, question: str) -> ServedAnswer:
        """Answer a question with an LLM that takes single questions. An answer from the cache costs no tokens."""
        served = await self.while_connected(self.service.answer(route, question))
        self.count(route, NO_USAGE if served.cached else usage_of(served.answer), cached=served.cached)
        return served

    async def prepare(self, route: Route, questions: Sequence[str]) -> list[PendingQuestion]:
        """Gather knowledge for each question, for an LLM that takes whole conversations; for all of them or none."""
        return await self.while_connected(self.service.prepare(route, questions))

    async def while_connected(self, work: Awaitable[Result]) -> Result:
        """Return the result of the work, which is cancelled when the client disconnects. Raises Disconnected."""
        task = asyncio.ensure_future(work)
        try:
            while not (await asyncio.wait({task}, timeout=POLL))[0]:
                if await self._request.is_disconnected():
                    raise Disconnected("the client disconnected before its answer")
            return await task
        finally:
            task.cancel()

    def count(self, route: Route, usage: Mapping[str, int], *, cached: bool = False) -> None:
        self._metrics.answered(route.mode, time.perf_counter() - self._started, usage, cached=cached)


Handler = Annotated[RequestHandler, Depends()]
