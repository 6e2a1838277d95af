"""Requests and errors in the format of OpenAI's API."""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# Errors of the endpoint, in the format that OpenAI's clients read.


class ApiError(Exception):
    """A request that fails.

    kind   OpenAI's type of the error, such as invalid_request_error
    param  the invalid parameter, such as messages[0].role; None for other errors
    code   a short name for programs, such as model_not_found
    """

    status = 400
    kind = "invalid_request_error"
    code: str | None = None

    def __init__(self, message: str, param: str | None = None, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.param, self.retry_after = param, retry_after


class NoSuchModel(ApiError):
    status, code = 404, "model_not_found"


class NotServed(ApiError):
    """A part of OpenAI's API that this endpoint does not have."""

    status, code = 404, "not_served"


class Unauthorized(ApiError):
    status, kind, code = 401, "authentication_error", "invalid_api_key"


class UnknownHost(ApiError):
    """The request names another host than this endpoint."""

    status, code = 403, "unknown_host"


class UploadRefused(ApiError):
    """The endpoint takes no files from this client."""

    status, code = 403, "upload_refused"


class DiskIsFull(ApiError):
    """The disk has no room for an uploaded file."""

    status, kind, code = 507, "server_error", "disk_full"


class Disconnected(ApiError):
    """The client has left, so that nobody reads this error; the status is that of nginx's logs."""

    status, code = 499, "disconnected"


class Overloaded(ApiError):
    """Too many questions are waiting."""

    status, kind, code = 503, "server_error", "overloaded"


class LLMFailed(ApiError):
    """The LLM behind the endpoint failed or can't be reached."""

    status, kind, code = 502, "server_error", "llm_error"


class CardFailed(ApiError):
    """The card that was asked by name is damaged or can't be loaded, or all cards of the question are."""

    status, kind, code = 500, "server_error", "card_error"


class TimedOut(ApiError):
    """The question took longer than a question may take."""

    status, kind, code = 504, "server_error", "timeout"


class Internal(ApiError):
    """A failure of the endpoint itself; its log says more."""

    status, kind, code = 500, "server_error", "internal_error"


def error_body(error: ApiError) -> dict[str, Any]:
    return {"error": {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}}


class ChatMessage(BaseModel):
    """One turn of a conversation. `content` is a text, or a list of parts such as texts and images."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None


class StreamOptions(BaseModel):
    include_usage: bool = False


TOKEN = re.compile(r"\w+|[^\w\s]")  # words and punctuation marks, which max_tokens counts


class _Request(BaseModel):
    """What both kinds of requests have. An LLM's own server gets all parameters as they came; for an LLM without one
    the endpoint does itself what `cut` does, and refuses what it can't do."""

    model_config = ConfigDict(extra="allow")

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | int | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def check_possible(self, temperature: float | None) -> None:
        """Raise ApiError for parameters that an LLM without a server of its own can't follow.

        temperature  at which it always answers; None if no temperature changes its answers
        """
        if self.temperature is not None and temperature is not None and self.temperature != temperature:
            raise ApiError(
                f"the LLM behind this endpoint answers at temperature {temperature:g}: leave temperature out, or "
                "start the endpoint with --temperature",
                "temperature",
            )
        if self.response_format is not None and self.response_format.get("type") != "text":
            raise ApiError("the LLM behind this endpoint writes text only", "response_format")
        if self.logprobs is not None and self.logprobs is not False:
            raise ApiError("the LLM behind this endpoint tells no log-probabilities", "logprobs")
        for name, most in (
            ("max_tokens", self.max_tokens),
            ("max_completion_tokens", self.max_completion_tokens),
        ):
            if most is not None and most < 1:
                raise ApiError(f"{name} is {most}: it must be 1 or more", name)

    def cut(self, text: str) -> tuple[str, Literal["stop", "length"]]:
        """Return an answer as far as `stop` and `max_tokens` let it go, and why it ends."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        for stop in stops:
            if stop:
                text = text.partition(stop)[0]
        most = self.max_completion_tokens or self.max_tokens
        tokens = [*TOKEN.finditer(text)]
        if most is None or len(tokens) <= most:
            return text, "stop"
        return text[: tokens[most - 1].end()], "length"


class ChatRequest(_Request):
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    tools: list[dict[str, Any]] | None = None

    @property
    def needs_passing_through(self) -> bool:
        """Whether only an LLM that takes whole conversations can answer: the request has tools, images or sound."""
        if self.tools:
            return True
        for message in self.messages:
            if message.role in ("tool", "function"):
                return True
            parts = message.content if isinstance(message.content, list) else []
            if any(part.get("type") != "text" for part in parts):
                return True
        return False


class CompletionRequest(_Request):
    prompt: str | Annotated[list[str], Field(min_length=1, max_length=64)]

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt


def text_of(message: ChatMessage) -> str:
    """Return the text of a turn, with a line for each text part."""
    if isinstance(message.content, str):
        return message.content
    texts = []
    for part in message.content or []:
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            texts.append(text)
    return "\n".join(texts)
