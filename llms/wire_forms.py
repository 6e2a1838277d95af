"""The two forms in which an OpenAI-compatible server is asked: chat completions, and completions of a plain text.

Chat models have a template of their own on the server. A base model has none: it continues the text of the prompt, and
what follows the first line is no longer the reply.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

from kcard.llms.prompts import messages, render
from kcard.llms.streamed_lines import first_line
from kcard.llms.token_scores import from_top
from kcard.request import Request, TokenScores

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["Chat", "Completions", "WireForm", "token_scores"]

Tokens = list[tuple[str, float]]


class WireForm(Protocol):
    """What differs between the forms. Readers raise AttributeError, IndexError or TypeError for other answers."""

    def create(self, client: "OpenAI", model: str, request: Request, given: dict[str, Any]) -> Any: ...

    def texts(self, request: Request) -> list[str]:
        """What is sent, for counting tokens."""
        ...

    def shown(self, request: Request) -> str:
        """What is sent, as one text for people."""
        ...

    def scored(self, top: int) -> dict[str, Any]:
        """The parameters that ask for the log-probabilities of the likeliest tokens at each place."""
        ...

    def said(self, choice: Any) -> str | None: ...

    def piece(self, choice: Any) -> str | None: ...

    def pieces(self, pieces: Iterable[str]) -> Iterator[str]:
        """The pieces of a stream that belong to the reply."""
        ...

    def places(self, choice: Any) -> list[tuple[float, Tokens]]:
        """At each place the log-probability of the token there, and (token, log-probability) of the likeliest ones;
        empty where the server gives none."""
        ...


class Chat:
    """`POST /chat/completions`."""

    def create(self, client: "OpenAI", model: str, request: Request, given: dict[str, Any]) -> Any:
        return client.chat.completions.create(model=model, messages=cast(Any, messages(request)), **given)

    def texts(self, request: Request) -> list[str]:
        return [message["content"] for message in messages(request)]

    def shown(self, request: Request) -> str:
        return "\n\n".join(f"{message['role']}: {message['content']}" for message in messages(request))

    def scored(self, top: int) -> dict[str, Any]:
        return {"logprobs": True, "top_logprobs": top}

    def said(self, choice: Any) -> str | None:
        text: str | None = choice.message.content
        return text

    def piece(self, choice: Any) -> str | None:
        text: str | None = choice.delta.content
        return text

    def pieces(self, pieces: Iterable[str]) -> Iterator[str]:
        return iter(pieces)

    def places(self, choice: Any) -> list[tuple[float, Tokens]]:
        content = choice.logprobs.content if choice.logprobs else None
        return [
            (place.logprob, [(top.token, top.logprob) for top in place.top_logprobs])
            for place in content or ()
        ]


class Completions:
    """`POST /completions`, whose prompt is `prompts.render`."""

    STOP = ("\n\n", "\nQuestion:")  # where the next example would begin
    MOST_TOP = 5  # likeliest tokens that servers give

    def create(self, client: "OpenAI", model: str, request: Request, given: dict[str, Any]) -> Any:
        return client.completions.create(model=model, prompt=render(request), stop=list(self.STOP), **given)

    def texts(self, request: Request) -> list[str]:
        return [render(request)]

    def shown(self, request: Request) -> str:
        return render(request)

    def scored(self, top: int) -> dict[str, Any]:
        return {"logprobs": min(top, self.MOST_TOP)}

    def said(self, choice: Any) -> str | None:
        return "".join(first_line([choice.text]))

    def piece(self, choice: Any) -> str | None:
        text: str | None = choice.text
        return text

    def pieces(self, pieces: Iterable[str]) -> Iterator[str]:
        return first_line(pieces)

    def places(self, choice: Any) -> list[tuple[float, Tokens]]:
        given = choice.logprobs
        if not given or not given.token_logprobs:
            return []
        tops = given.top_logprobs or [{} for _ in given.token_logprobs]
        return [
            (own or 0.0, list((top or {}).items()))
            for own, top in zip(given.token_logprobs, tops, strict=False)
        ]


def token_scores(places: list[tuple[float, Tokens]]) -> tuple[TokenScores, ...] | None:
    """Those of each token; None where the server gives none."""
    return tuple(from_top(own, [value for _, value in top]) for own, top in places) if places else None
