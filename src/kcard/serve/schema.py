"""Requests as OpenAI's API defines them. Parameters that are not named here are kept for the LLM."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ChatRequest", "CompletionRequest", "Message", "text_of"]


class Message(BaseModel):
    """One turn of a conversation. `content` is a text, or parts of which some are texts and others images, say."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None


class StreamOptions(BaseModel):
    include_usage: bool = False


class _Request(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: str
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(_Request):
    messages: Annotated[list[Message], Field(min_length=1)]
    tools: list[dict[str, Any]] | None = None

    @property
    def needs_passing_through(self) -> bool:
        """Whether only an LLM that takes whole conversations can answer it: tools, images, sound."""
        parts = [
            part for message in self.messages if isinstance(message.content, list) for part in message.content
        ]
        return (
            bool(self.tools)
            or any(message.role in ("tool", "function") for message in self.messages)
            or any(part.get("type") != "text" for part in parts)
        )


class CompletionRequest(_Request):
    prompt: str | Annotated[list[str], Field(min_length=1, max_length=64)]

    @property
    def prompts(self) -> list[str]:
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt


def text_of(message: Message) -> str:
    """The text of a turn; of several text parts, a line each."""
    if isinstance(message.content, str):
        return message.content
    texts = [part.get("text") for part in message.content or [] if part.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))
