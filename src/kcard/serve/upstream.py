"""Forward requests to the LLM's own server, with knowledge from the cards."""

import json
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import httpx
from starlette.responses import Response, StreamingResponse

from kcard.connections import THIS_MACHINE, UNCOMPRESSED, UnreadableReply, limit_reply_async
from kcard.conversation import (
    MAX_REWRITTEN_TOKENS,
    SPEAKERS,
    rewrite_request,
    rewritten_question,
    stands_alone,
)
from kcard.llms import prompts
from kcard.llms.parsing import without_thoughts
from kcard.llms.prompts import GROUNDED, grounded, numbered
from kcard.questions import checked
from kcard.serve.answers import ReportStage, RequestHandler, encode_json, sse, trace_headers, usage_of
from kcard.serve.schema import (
    ApiError,
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    LLMFailed,
    TimedOut,
    error_body,
    text_of,
)
from kcard.serve.service import PendingQuestion, Route
from kcard.types import Context, Question, Reply

# The client of the LLM's server, which takes whole conversations.

ApiPath = Literal["chat/completions", "completions"]
PASSED_ON = range(400, 500)  # a client's mistakes, which the LLM's server explains best
OURS = {401, 403, 404, 407}  # except these, which the endpoint's owner has to mend
LONGEST_MESSAGE = 500  # characters


class Upstream:
    """Client for (chat) completions of `model` at `url`. `timeout`: seconds without a byte.

    Raises ApiError where the server refuses a request, LLMFailed where it fails, TimedOut.
    """

    def __init__(self, url: str, model: str, key: str | None = None, timeout: float = 60.0) -> None:
        headers = {"Content-Type": "application/json", **UNCOMPRESSED}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self.model, self._url = model, url.rstrip("/")
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
            content = json.dumps(request | {"model": self.model}, allow_nan=False).encode()
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
    return " ".join(str(message).split())[:LONGEST_MESSAGE]


def _is_finished(chunk: Mapping[str, Any]) -> bool:
    """Return whether a choice ends with this chunk."""
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return False
    return any(isinstance(choice, dict) and choice.get("finish_reason") for choice in choices)


def _upstream_error(status: int, body: bytes) -> ApiError:
    """Return the error for a response of the LLM's server that is not a success."""
    try:
        message = str(json.loads(body)["error"]["message"])[:LONGEST_MESSAGE]
    except (ValueError, LookupError, TypeError, RecursionError):
        message = f"status {status}"
    if status == 429:
        error: ApiError = LLMFailed("the LLM behind this endpoint has too many requests", retry_after=5)
        error.status = 503
        return error
    if status in PASSED_ON and status not in OURS:
        return ApiError(f"the LLM behind this endpoint refused the request: {message}")
    return LLMFailed(f"the LLM behind this endpoint failed with status {status}", retry_after=5)


# The last question of a conversation, rewritten to stand alone, since cards don't read conversations.


def has_question(messages: Sequence[ChatMessage]) -> bool:
    """Return whether the user's last turn has text."""
    return bool(_last_text(messages))


def last_question(messages: Sequence[ChatMessage]) -> str:
    """Return the text of the user's last turn. Raises ApiError if there is none, UsageError if it is too long."""
    if text := _last_text(messages):
        checked(text)
        return text
    raise ApiError("the last message of the user has no text", "messages")


def _last_text(messages: Sequence[ChatMessage]) -> str:
    return next((text_of(m).strip() for m in reversed(messages) if m.role == "user"), "")


async def standalone(messages: Sequence[ChatMessage], upstream: Upstream) -> str:
    """Have the LLM rewrite the last question so that it stands alone.

    Returns the question unchanged if it is the first turn, if it stands alone, if the LLM fails or writes another text.
    """
    question = last_question(messages)
    last = max(at for at, message in enumerate(messages) if message.role == "user")
    turns = [(m.role, text_of(m)) for m in messages[:last] if m.role in SPEAKERS and text_of(m).strip()]
    if not turns or stands_alone(question):
        return question
    request = {
        "messages": prompts.messages(rewrite_request(Question(question), turns)),
        "temperature": 0,
        "max_tokens": MAX_REWRITTEN_TOKENS,
    }
    try:
        reply = await upstream.complete(request)
    except ApiError:
        return question
    return rewritten_question(
        question, without_thoughts(str(reply["choices"][0]["message"].get("content") or ""))
    )


# Conversations and prompts with knowledge from cards, in the wording of `kcard ask`, for the LLM's own server.


def conversation(messages: Sequence[ChatMessage], context: Context) -> list[dict[str, Any]]:
    """Return the turns as they came, with the passages around the text of the user's last one, and what they are for
    before all turns unless the client says itself how to answer."""
    turns = [message.model_dump(exclude_unset=True) for message in messages]
    if not context.knowledge:
        return turns
    last = max(at for at, turn in enumerate(turns) if turn["role"] == "user")
    content = turns[last]["content"]
    text = grounded(text_of(messages[last]), context.knowledge, context.headings)
    if isinstance(content, str):
        turns[last]["content"] = text
    else:
        others = [part for part in content if part.get("type") != "text"]
        turns[last]["content"] = [{"type": "text", "text": text}, *others]
    if not any(turn["role"] in ("system", "developer") for turn in turns):
        turns.insert(0, {"role": "system", "content": GROUNDED["system"]})
    return turns


def prompt_with_documents(prompt: str, context: Context) -> str:
    """Return a prompt that a model continues, after the passages."""
    if not context.knowledge:
        return prompt
    return "\n\n".join([GROUNDED["system"], numbered(context.knowledge, context.headings), prompt])


# Requests that the LLM's own server answers, in OpenAI's two forms: conversations and prompts.


@dataclass(frozen=True)
class ForwardedChat:
    """A conversation, whose last question is answered."""

    path: ClassVar[ApiPath] = "chat/completions"
    body: ChatRequest

    def payload(self, contexts: Sequence[Context]) -> dict[str, Any]:
        """Return what is sent: all parameters as they came, with the passages for each question that was prepared."""
        messages = conversation(self.body.messages, contexts[0] if contexts else Context())
        return self.body.model_dump(exclude_unset=True) | {"messages": messages}

    def text(self, choice: Mapping[str, Any]) -> str:
        """Return the text of a choice, in a response or in a chunk of one."""
        part = choice.get("message") or choice.get("delta")
        content = part.get("content") if isinstance(part, dict) else None
        return content if isinstance(content, str) else ""

    def trace(self, traces: Sequence[Any]) -> Any:
        """Return the field `kcard`, from a trace for each question."""
        return traces[0]


@dataclass(frozen=True)
class ForwardedCompletion:
    """A request with prompts, each a question."""

    path: ClassVar[ApiPath] = "completions"
    body: CompletionRequest

    def payload(self, contexts: Sequence[Context]) -> dict[str, Any]:
        body = self.body
        pairs = zip(body.prompts, contexts, strict=True)
        prompts = [prompt_with_documents(text, context) for text, context in pairs]
        return body.model_dump(exclude_unset=True) | {
            "prompt": prompts[0] if isinstance(body.prompt, str) else prompts
        }

    def text(self, choice: Mapping[str, Any]) -> str:
        content = choice.get("text")
        return content if isinstance(content, str) else ""

    def trace(self, traces: Sequence[Any]) -> Any:
        return list(traces)


class RequestForwarder:
    """A forwarder of one request to the LLM's server, with all parameters except the model's name.

    pending  the request's questions with their passages; none if the user's last turn has no text, such as an image:
             then the request passes without knowledge and trace
    report   called when the answer is there and its sentences are about to be checked
    """

    def __init__(
        self,
        handler: RequestHandler,
        upstream: Upstream,
        request: ForwardedChat | ForwardedCompletion,
        route: Route,
        pending: Sequence[PendingQuestion],
        report: ReportStage = lambda _: None,
    ) -> None:
        self._report = report
        self._handler, self._upstream, self._request, self._route = handler, upstream, request, route
        self._model, self._contexts = request.body.model, [one.prepared.context for one in pending]
        self._pending = pending
        self._headers: dict[str, str] = {}
        if pending:
            cards = (passage.card for context in self._contexts for passage in context.passages)
            self._headers = trace_headers(cards, any(one.prepared.decision.fired for one in pending))
        self._started = time.perf_counter()

    async def response(self) -> Response:
        """Return the server's response, streamed if the request says so. Raises what Upstream raises.

        An error before the first chunk is raised; a later one becomes an event of the stream.
        """
        if not self._request.body.stream:
            content = await self._handler.while_connected(self._complete())
            return Response(encode_json(content), media_type="application/json", headers=self._headers)
        events = self._stream()
        first = await self._handler.while_connected(anext(events))

        async def all_events() -> AsyncGenerator[bytes, None]:
            yield first
            async for event in events:
                yield event

        return StreamingResponse(all_events(), media_type="text/event-stream", headers=self._headers)

    async def _complete(self) -> dict[str, Any]:
        """Return the server's response with the field `kcard`."""
        payload = self._request.payload(self._contexts)
        response = await self._upstream.complete(payload, self._request.path)
        texts = {at: self._request.text(choice) for at, choice in _numbered_choices(response)}
        return {**response, "model": self._model, **await self._trace(texts, response.get("usage"))}

    async def _stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the server's chunks, each when the next one is there, since the last choice carries the field `kcard`.

        A chunk without choices, the usage, is passed on only if the client asked for it.
        """
        texts: defaultdict[int, str] = defaultdict(str)
        usage, choice_chunk, usage_chunk = None, None, None
        payload = self._request.payload(self._contexts) | {"stream_options": {"include_usage": True}}
        try:
            async with aclosing(self._upstream.stream(payload, self._request.path)) as chunks:
                async for chunk in chunks:
                    usage = chunk.get("usage") or usage
                    for at, choice in _numbered_choices(chunk):
                        texts[at] += self._request.text(choice)
                    if not chunk.get("choices"):
                        usage_chunk = chunk
                        continue
                    if choice_chunk is not None:
                        yield sse(choice_chunk)
                    choice_chunk = {**chunk, "model": self._model}
            self._report({"name": "checking"})
            trace = await self._trace(texts, usage)
            if choice_chunk is not None:
                yield sse({**choice_chunk, **trace})
            if usage_chunk is not None and self._request.body.include_usage:
                yield sse({**usage_chunk, "model": self._model})
            yield sse(None)
        except ApiError as error:
            if choice_chunk is None:
                raise
            yield sse(choice_chunk)
            yield sse(error_body(error))

    async def _trace(self, texts: Mapping[int, str], usage: Any) -> dict[str, Any]:
        """Complete the pending questions, count their tokens and return the field `kcard`; empty without questions."""
        usage = usage if isinstance(usage, dict) else {}
        tokens = _tokens(usage, "prompt_tokens"), _tokens(usage, "completion_tokens")
        if not self._pending:
            self._count([{"prompt_tokens": tokens[0] or 0, "completion_tokens": tokens[1] or 0}])
            return {}
        seconds = (time.perf_counter() - self._started) / len(self._pending)
        answers = []
        for at, question in enumerate(self._pending):
            # The server counts the tokens of all prompts together: they are those of the first.
            read, wrote = (count if not at or count is None else 0 for count in tokens)
            reply = Reply(texts.get(at, ""), None, read, wrote)
            answers.append(await self._handler.service.complete(question, reply, seconds))
        self._count([usage_of(answer) for answer in answers])
        return {"kcard": self._request.trace([answer.to_json() for answer in answers])}

    def _count(self, usages: Sequence[Mapping[str, int]]) -> None:
        read, wrote = (
            sum(usage[kind] for usage in usages) for kind in ("prompt_tokens", "completion_tokens")
        )
        self._handler.count(
            self._route, {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}
        )


def _tokens(usage: Mapping[str, Any], name: str) -> int | None:
    count = usage.get(name)
    return count if isinstance(count, int) and count >= 0 else None


def _numbered_choices(response: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the choices with the numbers of their questions. Raises LLMFailed for what is no list of choices."""
    choices = response.get("choices") or []
    numbered: list[tuple[int, Mapping[str, Any]]] = []
    for choice in choices if isinstance(choices, list) else [None]:
        number = (choice.get("index") or 0) if isinstance(choice, dict) else None
        if choice is None or not isinstance(number, int):
            raise LLMFailed("the LLM behind this endpoint sent a malformed choice")
        numbered.append((number, choice))
    return numbered
