"""Requests that the LLM's own server answers, in OpenAI's two forms: conversations and prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from kcard.serve import knowledge
from kcard.serve.schema import ChatRequest, CompletionRequest
from kcard.serve.upstream import Path

__all__ = ["Forwarded", "ForwardedChat", "ForwardedCompletion"]


class Forwarded(Protocol):
    """A request and how its response is read."""

    path: ClassVar[Path]

    @property
    def asked(self) -> ChatRequest | CompletionRequest: ...

    def payload(self, known: Sequence[Sequence[str]]) -> dict[str, Any]:
        """What is sent: all parameters as they came, with what is known of each question, if any was prepared."""
        ...

    def text(self, choice: Mapping[str, Any]) -> str:
        """What a choice of a response says, or of a chunk of it."""
        ...

    def trace(self, traces: Sequence[Any]) -> Any:
        """The field `kcard`, from a trace for each question."""
        ...


@dataclass(frozen=True)
class ForwardedChat:
    """A conversation, whose last question is asked."""

    path: ClassVar[Path] = "chat/completions"
    asked: ChatRequest

    def payload(self, known: Sequence[Sequence[str]]) -> dict[str, Any]:
        passages = known[0] if known else ()
        messages = knowledge.conversation(self.asked.messages, passages)
        return self.asked.model_dump(exclude_unset=True) | {"messages": messages}

    def text(self, choice: Mapping[str, Any]) -> str:
        return _text((choice.get("message") or choice.get("delta") or {}).get("content"))

    def trace(self, traces: Sequence[Any]) -> Any:
        return traces[0]


@dataclass(frozen=True)
class ForwardedCompletion:
    """Prompts, each of which is a question."""

    path: ClassVar[Path] = "completions"
    asked: CompletionRequest

    def payload(self, known: Sequence[Sequence[str]]) -> dict[str, Any]:
        asked = self.asked
        prompts = [
            knowledge.prompt(text, passages) for text, passages in zip(asked.prompts, known, strict=True)
        ]
        given = prompts[0] if isinstance(asked.prompt, str) else prompts
        return asked.model_dump(exclude_unset=True) | {"prompt": given}

    def text(self, choice: Mapping[str, Any]) -> str:
        return _text(choice.get("text"))

    def trace(self, traces: Sequence[Any]) -> Any:
        return list(traces)


def _text(content: Any) -> str:
    return content if isinstance(content, str) else ""
