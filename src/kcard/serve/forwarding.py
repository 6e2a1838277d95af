"""Requests that the LLM's own server answers, with knowledge from the cards."""

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, ClassVar

from starlette.responses import Response, StreamingResponse

from kcard.conversation import (
    MAX_REWRITTEN_TOKENS,
    SPEAKERS,
    rewrite_request,
    rewritten_question,
    stands_alone,
)
from kcard.display import warning_of
from kcard.llms import prompts
from kcard.llms.parsing import without_thoughts
from kcard.llms.prompts import GROUNDED_PROMPTS, grounded, numbered
from kcard.questions import checked
from kcard.serve.answers import ReportStage, RequestHandler, encode_json, sse, trace_headers, usage_of
from kcard.serve.pipelines import PendingQuestion, Route
from kcard.serve.schema import (
    ApiError,
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    LLMFailed,
    error_body,
    text_of,
)
from kcard.serve.upstream import ApiPath, Upstream
from kcard.types import Answer, Context, Question, Reply


def has_question(messages: Sequence[ChatMessage]) -> bool:
    """Return whether the user's last turn has text."""
    return bool(_last_text(messages))


def last_question(messages: Sequence[ChatMessage]) -> str:
    """Return the text of the user's last turn. Raises ApiError if there is none, UsageError if it is too long."""
    text = _last_text(messages)
    if not text:
        raise ApiError("the last message of the user has no text", "messages")
    checked(text)
    return text


def _last_text(messages: Sequence[ChatMessage]) -> str:
    for message in reversed(messages):
        if message.role == "user":
            return text_of(message).strip()
    return ""


def _last_user_turn(roles: Sequence[str]) -> int:
    """Return the place of the user's last turn."""
    return len(roles) - 1 - list(reversed(roles)).index("user")


async def standalone(messages: Sequence[ChatMessage], upstream: Upstream) -> str:
    """Have the LLM rewrite the last question so that it stands alone.

    Returns the question unchanged if it is the first turn, if it stands alone, if the LLM fails or writes another text.
    """
    question = last_question(messages)
    last = _last_user_turn([message.role for message in messages])
    turns = []
    for message in messages[:last]:
        text = text_of(message)
        if message.role in SPEAKERS and text.strip():
            turns.append((message.role, text))
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


def conversation(messages: Sequence[ChatMessage], context: Context) -> list[dict[str, Any]]:
    """Return the turns as they came, with the passages around the text of the user's last one, and what they are for
    before all turns unless the client says itself how to answer."""
    turns = [message.model_dump(exclude_unset=True) for message in messages]
    if not context.knowledge:
        return turns
    roles = [turn["role"] for turn in turns]
    last = _last_user_turn(roles)
    content = turns[last]["content"]
    text = grounded(text_of(messages[last]), context.knowledge, context.headings)
    if isinstance(content, str):
        turns[last]["content"] = text
    else:
        others = [part for part in content if part.get("type") != "text"]
        turns[last]["content"] = [{"type": "text", "text": text}, *others]
    if "system" not in roles and "developer" not in roles:
        turns.insert(0, {"role": "system", "content": GROUNDED_PROMPTS["system"]})
    return turns


def prompt_with_documents(prompt: str, context: Context) -> str:
    """Return a prompt that a model continues, after the passages."""
    if not context.knowledge:
        return prompt
    return "\n\n".join([GROUNDED_PROMPTS["system"], numbered(context.knowledge, context.headings), prompt])


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
        if isinstance(part, dict) and isinstance(part.get("content"), str):
            return str(part["content"])
        return ""

    @property
    def is_for_people(self) -> bool:
        """Whether the answer is a text, rather than JSON or a call of tools."""
        return not self.body.tools and self.body.response_format in (None, {"type": "text"})

    def trace(self, traces: Sequence[Any]) -> Any:
        """Return the field `kcard`, from a trace for each question."""
        return traces[0]


@dataclass(frozen=True)
class ForwardedCompletion:
    """A request with prompts, each a question."""

    path: ClassVar[ApiPath] = "completions"
    is_for_people: ClassVar[bool] = False  # a model may go on with the text
    body: CompletionRequest

    def payload(self, contexts: Sequence[Context]) -> dict[str, Any]:
        prompts = []
        for prompt, context in zip(self.body.prompts, contexts, strict=True):
            prompts.append(prompt_with_documents(prompt, context))
        is_single = isinstance(self.body.prompt, str)
        return self.body.model_dump(exclude_unset=True) | {"prompt": prompts[0] if is_single else prompts}

    def text(self, choice: Mapping[str, Any]) -> str:
        content = choice.get("text")
        if isinstance(content, str):
            return content
        return ""

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
        answers = await self._answers(texts, response.get("usage"))
        warning = self._warning(answers)
        if warning and 0 in texts:
            choice = response["choices"][0]
            message = {**choice["message"], "content": f"{texts[0]}\n\n{warning}"}
            response = {**response, "choices": [{**choice, "message": message}]}
        return {**response, "model": self._model, **self._trace(answers)}

    def _warning(self, answers: Sequence[Answer]) -> str:
        """Return the line that the text of the answer has behind it; none on our page, which shows all verdicts."""
        if not answers or self._handler.is_of_page or not self._request.is_for_people:
            return ""
        return warning_of(answers[0])

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
            answers = await self._answers(texts, usage)
            if choice_chunk is not None:
                warning = self._warning(answers)
                if warning:
                    # In a last chunk of its own.
                    last = choice_chunk["choices"][0]
                    yield sse({**choice_chunk, "choices": [{**last, "finish_reason": None}]})
                    behind = {**last, "delta": {"content": f"\n\n{warning}"}}
                    choice_chunk = {**choice_chunk, "choices": [behind]}
                yield sse({**choice_chunk, **self._trace(answers)})
            if usage_chunk is not None and self._request.body.include_usage:
                yield sse({**usage_chunk, "model": self._model})
            yield sse(None)
        except ApiError as error:
            if choice_chunk is None:
                raise
            yield sse(choice_chunk)
            yield sse(error_body(error))

    def _trace(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """Return the field `kcard`; empty without questions."""
        if not answers:
            return {}
        return {"kcard": self._request.trace([answer.to_json() for answer in answers])}

    async def _answers(self, texts: Mapping[int, str], usage: Any) -> list[Answer]:
        """Complete the pending questions and count their tokens."""
        usage = usage if isinstance(usage, dict) else {}
        tokens = _tokens(usage, "prompt_tokens"), _tokens(usage, "completion_tokens")
        if not self._pending:
            self._count([{"prompt_tokens": tokens[0] or 0, "completion_tokens": tokens[1] or 0}])
            return []
        seconds = (time.perf_counter() - self._started) / len(self._pending)
        usages, answers = [], []
        for at, question in enumerate(self._pending):
            # The server counts the tokens of all prompts together: they are those of the first.
            if at == 1:
                tokens = tokens[0] and 0, tokens[1] and 0
            reply = Reply(texts.get(at, ""), None, *tokens)
            answer = await self._handler.service.complete(question, reply, seconds)
            usages.append(usage_of(answer))
            answers.append(answer)
        self._count(usages)
        return answers

    def _count(self, usages: Sequence[Mapping[str, int]]) -> None:
        counts = {"prompt_tokens": 0, "completion_tokens": 0}
        for usage in usages:
            for kind in counts:
                counts[kind] += usage[kind]
        self._handler.count(self._route, counts | {"total_tokens": sum(counts.values())})


def _tokens(usage: Mapping[str, Any], name: str) -> int | None:
    count = usage.get(name)
    if isinstance(count, int) and count >= 0:
        return count
    return None


def _numbered_choices(response: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the choices with the numbers of their questions. Raises LLMFailed for what is no list of choices."""
    choices = response.get("choices") or []
    malformed = LLMFailed("the LLM behind this endpoint sent a malformed choice")
    if not isinstance(choices, list):
        raise malformed
    numbered: list[tuple[int, Mapping[str, Any]]] = []
    for choice in choices:
        if not isinstance(choice, dict):
            raise malformed
        number = choice.get("index") or 0
        if not isinstance(number, int):
            raise malformed
        numbered.append((number, choice))
    return numbered
