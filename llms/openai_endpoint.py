"""LLMs behind an OpenAI-compatible endpoint.

Only the text of requests is sent; the LLM is a black box. An endpoint is used only if the user chose it: a key in the
environment is not a choice.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from kcard.connections import UnreadableReply, connected
from kcard.conversation import MAX_REWRITTEN_TOKENS
from kcard.errors import LLMError, RequestRefused, UsageError
from kcard.events import OnEvent, ignore
from kcard.interfaces import LLM
from kcard.llms.parsing import (
    DRAFT_TOKENS,
    first_line,
    from_probabilities,
    from_text,
    from_top,
    option_from_tokens,
    spoken_pieces,
    without_thoughts,
)
from kcard.llms.prompts import NEED_WORDINGS, Message, is_grounded, messages, render
from kcard.types import Reply, Request, TokenScores

if TYPE_CHECKING:
    from openai import OpenAI

# The errors of an OpenAI-compatible endpoint, each as one line with URL and remedy.

# vLLM also says "max_tokens=300 cannot be greater than max_model_len=256" and "the maximum model length of 256".
TOO_LONG = re.compile(
    r"context.(length|window|size)|context too|prompt is too long|too many (input )?tokens"
    r"|max_model_len|maximum model length"
)
OF_THE_REQUEST = {400, 413, 422}  # statuses that are about what was sent
CONTEXT = re.compile(
    r"(?:context.(?:length|window|size)\D{0,20}|tokens > |max_model_len(?: ?= ?| \(?)|maximum model length of )"
    r"(\d[\d,]*)"
)


def refused_parameter(reason: str, parameters: Mapping[str, Any]) -> str | None:
    """Return the parameter that a 400 refuses, as far as one can tell: newer models refuse some of the usual ones."""
    reason = reason.lower()
    if "max_completion_tokens" in reason and "max_tokens" in parameters:
        return "max_tokens"
    if "temperature" in reason and "support" in reason and "temperature" in parameters:
        return "temperature"
    return next((name for name in ("logprobs", "stream_options") if name in parameters), None)


def failure(where: str, model: str, error: Exception) -> LLMError:
    """Convert an error of the openai package or of the connection to an LLMError."""
    import openai

    reason = " ".join(str(error).split())[:200]
    if isinstance(error, openai.APITimeoutError):
        return LLMError(f"{where} did not answer in time: try again, or choose a faster model than {model!r}")
    if isinstance(error, openai.APIConnectionError) and isinstance(error.__cause__, UnreadableReply):
        return LLMError(f"{where} sent a reply that can't be read: {error.__cause__}")
    if isinstance(error, openai.APIConnectionError):
        return LLMError(f"{where} can't be reached: start the server, or correct --llm-url")
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return LLMError(f"{where} refused the key: set OPENAI_API_KEY to a key with access to {model!r}")
    if isinstance(error, openai.NotFoundError):
        return LLMError(
            f"{where} does not know the model {model!r} or no such path: correct --llm or --llm-url ({reason})"
        )
    if isinstance(error, openai.RateLimitError):
        return LLMError(f"{where} accepts no more requests at present: wait and try again ({reason})")
    if isinstance(error, openai.APIStatusError):
        message = f"{where} failed with status {error.status_code}: {reason}"
        if error.status_code in OF_THE_REQUEST:
            return RequestRefused(message)
        return LLMError(message)
    return LLMError(
        f"{where} sent a reply that can't be read: is this an OpenAI-compatible URL (…/v1)? ({reason})"
    )


# The two wire forms of an OpenAI-compatible server: chat completions, and completions of a plain text.
#
# Chat models have a template on the server. A base model has none: it continues the text of the prompt, and only the
# first line is the reply.

Tokens = list[tuple[str, float]]


class Chat:
    """`POST /chat/completions`. Readers raise AttributeError, IndexError or TypeError for malformed answers."""

    def create(self, client: "OpenAI", model: str, request: Request, parameters: dict[str, Any]) -> Any:
        return client.chat.completions.create(
            model=model, messages=cast(Any, self.turns(request)), **parameters
        )

    def turns(self, request: Request) -> list[Message]:
        """Return the messages that are sent."""
        return messages(request)

    def texts(self, request: Request) -> list[str]:
        """Return the texts that are sent, for counting tokens."""
        return [message["content"] for message in self.turns(request)]

    def prompt_text(self, request: Request) -> str:
        """Return the request as one text for people."""
        return "\n\n".join(f"{message['role']}: {message['content']}" for message in self.turns(request))

    def logprob_parameters(self, top: int) -> dict[str, Any]:
        """Return the parameters that request the log-probabilities of the most likely tokens at each place."""
        return {"logprobs": True, "top_logprobs": top}

    def reply_text(self, choice: Any, request: Request) -> str | None:
        del request
        return cast(str | None, choice.message.content)

    def piece(self, choice: Any) -> str | None:
        return cast(str | None, choice.delta.content)

    def pieces(self, pieces: Iterable[str], request: Request) -> Iterator[str]:
        """Yield the pieces of a stream that belong to the reply."""
        del request
        return iter(pieces)

    def places(self, choice: Any) -> list[tuple[float, Tokens]]:
        """Return for each place the log-probability of the token there, and (token, log-probability) of the most likely
        ones; empty if the server gives none."""
        places: list[tuple[float, Tokens]] = []
        if not choice.logprobs:
            return places
        for place in choice.logprobs.content or ():
            likeliest = [(top.token, top.logprob) for top in place.top_logprobs]
            places.append((place.logprob, likeliest))
        return places


class Completions(Chat):
    """`POST /completions`, whose prompt is `prompts.render`."""

    STOP = ("\n\n", "\nQuestion:")  # where the next example would begin
    MAX_TOP_TOKENS = 5  # that servers give

    def create(self, client: "OpenAI", model: str, request: Request, parameters: dict[str, Any]) -> Any:
        return client.completions.create(
            model=model, prompt=self.prompt_text(request), stop=list(self.STOP), **parameters
        )

    def texts(self, request: Request) -> list[str]:
        return [self.prompt_text(request)]

    def prompt_text(self, request: Request) -> str:
        return render(request)

    def logprob_parameters(self, top: int) -> dict[str, Any]:
        return {"logprobs": min(top, self.MAX_TOP_TOKENS)}

    def reply_text(self, choice: Any, request: Request) -> str | None:
        return "".join(self.pieces([choice.text], request))

    def piece(self, choice: Any) -> str | None:
        return cast(str | None, choice.text)

    def pieces(self, pieces: Iterable[str], request: Request) -> Iterator[str]:
        """Yield the first line; of a grounded answer, which may be a list, all lines up to the first blank one."""
        if is_grounded(request):
            return iter(pieces)
        return first_line(pieces)

    def places(self, choice: Any) -> list[tuple[float, Tokens]]:
        scores = choice.logprobs
        if not scores or not scores.token_logprobs:
            return []
        places: list[tuple[float, Tokens]] = []
        tops = scores.top_logprobs or [None] * len(scores.token_logprobs)
        for own, top in zip(scores.token_logprobs, tops, strict=False):
            places.append((own or 0.0, list((top or {}).items())))
        return places


TOP_TOKENS = 5
OPTION_TOKENS = 20  # likeliest first tokens, among them the letters of the options
MAX_TOKENS = {"need": 4, "what": 48, "choose": 48, "rewrite": MAX_REWRITTEN_TOKENS}
THINKING_TOKENS = 2048
# Tokens are guessed, rather too many: three bytes each, and a few for a message's frame.
BYTES_A_TOKEN = 3
FRAME = 8
CONCURRENCY = 4  # requests at a time, unless --concurrency says otherwise: what small servers bear


class OpenAIEndpoint(LLM):
    """Completions of `model` at `url` (default: api.openai.com).

    key      may be None for a local server
    timeout  seconds per attempt
    retries  after 429, 5xx, a time-out or a lost connection the client tries again so many times, after the delay of
             Retry-After (up to a minute), or after 0.5 s, 1 s, 2 s ... up to 8 s, and calls `on_event` with a note
    window   the model's context in tokens; None: as a refusal tells
    form     chat completions (default), or completions

    Raises UsageError for an empty model name, for a missing key if OpenAI itself is used, or for a number below its
    minimum.
    """

    def __init__(
        self,
        model: str,
        url: str | None = None,
        key: str | None = None,
        temperature: float = 0.1,
        timeout: float = 60.0,
        max_tokens: int = 256,
        retries: int = 5,
        window: int | None = None,
        on_event: OnEvent = ignore,
        form: Chat | None = None,
    ) -> None:
        if not model:
            raise UsageError("the endpoint needs a model name: --llm openai:MODEL")
        if url is None and not key:
            raise UsageError(
                "openai needs a key: set OPENAI_API_KEY, or give the URL of your own server with --llm-url"
            )
        if retries < 0:
            raise UsageError(f"retries is {retries}: it must be 0 or more")
        if window is not None and window < 64:
            raise UsageError(f"llm-window is {window}: it must be at least 64")
        self.model, self.url, self.key, self.timeout = model, url, key, timeout
        self.temperature, self.max_tokens = temperature, max_tokens
        self._where = url or "https://api.openai.com/v1"
        self.concurrency = CONCURRENCY
        self._form = form or Chat()
        self._client = connected(url, key, timeout, retries, on_event)
        self._refused: set[str] = set()
        self._context = window  # tokens that the model reads and writes, as far as known
        self.window = None
        if window is not None:
            self.window = self._room(window)
        self.announcement = f"LLM: {model} at {self._where}; questions and knowledge are sent there"

    @property
    def is_chat(self) -> bool:
        """Whether it takes conversations."""
        return not isinstance(self._form, Completions)

    def count(self, request: Request) -> int:
        """Estimate the request's tokens from its bytes."""
        sizes = [len(text.encode()) for text in self._form.texts(request)]
        return sum(-(-size // BYTES_A_TOKEN) + FRAME for size in sizes)

    def prompt(self, request: Request) -> str:
        """Return the request as it is sent, as one text."""
        return self._form.prompt_text(request)

    def reply(self, request: Request) -> Reply:
        """Return the reply. Raises LLMError, one line that names the URL and the remedy."""
        # A draft: the most likely first words of an answer, with the scores of their tokens if the server gives them.
        if request.draft:
            greedy = {**self._form.logprob_parameters(TOP_TOKENS), "temperature": 0.0}
            answer = self._complete(request, DRAFT_TOKENS, greedy)
            places = self._places(answer)
            scores = _token_scores(places)
            return Reply(self._text(answer, request), None, *_usage(answer), scores or None)
        # An option: the one whose letter is the most likely first token, if the server tells and the reply is a letter;
        # else it is read from the text.
        if request.kind == "answer" and request.choices:
            answer = self._complete(request, self.max_tokens, self._form.logprob_parameters(OPTION_TOKENS))
            reply = Reply(self._text(answer, request), None, *_usage(answer))
            option = option_from_tokens(self._first_tokens(answer), reply.text, request.choices)
            if option is None:
                return reply
            letter, shares = option
            return replace(reply, choice=letter, confidence=max(shares), shares=shares)
        tokens = MAX_TOKENS.get(request.kind, self.max_tokens)
        extra: dict[str, Any] = {}
        if request.kind in ("need", "answer"):
            extra = self._form.logprob_parameters(TOP_TOKENS)
        answer = self._complete(request, tokens, extra)
        text, used = self._text(answer, request), _usage(answer)
        is_cut = getattr(answer.choices[0], "finish_reason", None) == "length"  # at the limit of tokens
        if is_cut and not text:
            # A reasoning model was cut off in its thoughts.
            answer = self._complete(request, tokens + THINKING_TOKENS, extra)
            text, used = self._text(answer, request), _usage(answer)
        if request.kind != "need":
            scores = _token_scores(self._places(answer))
            return Reply(text, None, *used, tokens=scores or None)
        yes = from_probabilities(self._first_tokens(answer))
        if yes is None:
            yes = from_text(text)
        return Reply(text, NEED_WORDINGS[request.template].needed(yes), *used)

    def stream(self, request: Request) -> Iterator[str | Reply]:
        """Yield the answer as it arrives; an endpoint that can't stream is asked for the whole."""
        import httpx
        import openai

        text, ended, cut = "", False, False
        used: tuple[int | None, int | None] = (None, None)
        scores: list[TokenScores] = []
        parameters = {"stream": True, "stream_options": {"include_usage": True}}
        parameters |= self._form.logprob_parameters(TOP_TOKENS)

        def arriving() -> Iterator[str]:
            nonlocal used, ended, cut
            with closing(self._complete(request, self.max_tokens, parameters)) as chunks:
                for chunk in chunks:
                    if chunk.usage:
                        used = _usage(chunk)
                    for choice in chunk.choices[:1]:
                        ended = ended or choice.finish_reason is not None
                        cut = cut or choice.finish_reason == "length"
                        scores.extend(_token_scores(self._form.places(choice)))
                        yield self._form.piece(choice) or ""

        try:
            for piece in self._form.pieces(spoken_pieces(arriving()), request):
                if not text:
                    piece = piece.lstrip()
                text += piece
                if piece:
                    yield piece
        except (
            openai.OpenAIError,
            httpx.HTTPError,
            ValueError,
            TypeError,
            AttributeError,
            RecursionError,  # JSON that is nested too deeply
        ) as error:
            raise failure(self._where, self.model, error) from error
        # A server that can't stream, or a reasoning model that was cut off in its thoughts.
        if not text and (cut or not ended):
            reply = self.reply(request)
            yield from (reply.text, reply)
            return
        if not ended:
            raise LLMError(f"{self._where} broke off in the middle of its answer: try again")
        yield Reply(text.strip(), None, *used, tokens=tuple(scores) or None)

    def _complete(self, request: Request, tokens: int, extra: dict[str, Any]) -> Any:
        """Return the server's answer. A parameter that it refuses is left out from then on; if the reply's limit alone
        exceeds the model's context, the request is repeated with half of the context."""
        import openai

        extra = self._sampling(request) | extra
        while True:
            parameters = {"temperature": self.temperature, "max_tokens": self._shortened(tokens), **extra}
            if "max_tokens" in self._refused:
                parameters["max_completion_tokens"] = self._shortened(tokens + THINKING_TOKENS)
            if "logprobs" in self._refused:
                parameters.pop("top_logprobs", None)
            for name in self._refused:
                parameters.pop(name, None)
            try:
                return self._form.create(self._client, self.model, request, parameters)
            except openai.BadRequestError as error:
                reason = str(error).lower()
                if TOO_LONG.search(reason):
                    # The size of the model's context, if the refusal names it.
                    limit = parameters.get("max_tokens") or parameters["max_completion_tokens"]
                    window = sent = self.count(request)
                    match = CONTEXT.search(reason)
                    context = int(match[1].replace(",", "")) if match else 0
                    if context:
                        self._context = context
                        window = self._room(context)
                    if 0 < context < int(limit):
                        self.window = window
                        continue
                    # If a prompt that should fit did not, our count was too low.
                    if self.window is not None:
                        window = min(window, self.window)
                    if window >= sent:
                        window = sent * 3 // 4
                    self.window = window
                    raise failure(self._where, self.model, error) from error
                refused = refused_parameter(str(error), parameters)
                if refused is None:
                    raise failure(self._where, self.model, error) from error
                self._refused.add(refused)
            except (openai.OpenAIError, ValueError, TypeError, RecursionError) as error:
                raise failure(self._where, self.model, error) from error

    def _sampling(self, request: Request) -> dict[str, Any]:
        """Return the parameters with which this request is sampled."""
        sampling: dict[str, Any] = {}
        if request.temperature is not None:
            sampling["temperature"] = request.temperature
        if request.sample:
            sampling["seed"] = request.sample
        return sampling

    def _shortened(self, tokens: int) -> int:
        """Limit a reply to half of the context: the prompt has the other half (_room)."""
        if self._context is None:
            return tokens
        return min(tokens, self._context // 2)

    def _room(self, context: int) -> int:
        return max(context - self.max_tokens, context // 2)

    def _text(self, answer: Any, request: Request) -> str:
        """Return the reply's text; raise LLMError if the answer is no completion (a web page, say)."""
        try:
            text = self._form.reply_text(answer.choices[0], request)
        except (AttributeError, IndexError, TypeError):
            raise LLMError(
                f"{self._where} sent no completion for {self.model!r}: is this an OpenAI-compatible URL (…/v1)?"
            ) from None
        return without_thoughts(str(text or "")).strip()

    def _places(self, answer: Any) -> list[tuple[float, Tokens]]:
        """See Chat; empty if the server gives none."""
        try:
            return self._form.places(answer.choices[0])
        except (AttributeError, IndexError, TypeError):
            return []

    def _first_tokens(self, answer: Any) -> Tokens:
        """Return (token, log-probability) of the first position; empty if the server gives none."""
        places = self._places(answer)
        if not places:
            return []
        return places[0][1]


def completions(model: str, **options: Any) -> OpenAIEndpoint:
    """Return the endpoint of a base model, which continues a text and has no chat template."""
    return OpenAIEndpoint(model, **options, form=Completions())


def _token_scores(places: Iterable[tuple[float, Tokens]]) -> tuple[TokenScores, ...]:
    scores = []
    for own, top in places:
        scores.append(from_top(own, [value for _, value in top]))
    return tuple(scores)


def _usage(answer: Any) -> tuple[int | None, int | None]:
    """Return the tokens read and written, if the server tells."""
    used = getattr(answer, "usage", None)
    read, wrote = getattr(used, "prompt_tokens", None), getattr(used, "completion_tokens", None)
    if isinstance(read, int) and isinstance(wrote, int):
        return read, wrote
    return None, None
