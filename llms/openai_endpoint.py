"""Any OpenAI-compatible endpoint as the LLM: OpenAI itself, vLLM, llama.cpp, Ollama, LM Studio and so on.

Nothing but the text of requests is sent, and nothing of the model's inside is needed (the LLM is a black box). An
endpoint is used only where it was chosen: a key that lies in the environment is no choice.
"""

from typing import TYPE_CHECKING, Any, cast

from kcard.errors import LLMError, MissingExtra, UsageError
from kcard.llms.prompts import messages
from kcard.llms.yes_no import from_probabilities, from_text
from kcard.request import Reply, Request

if TYPE_CHECKING:
    from openai import OpenAI

__all__ = ["OpenAIEndpoint"]

TOP_TOKENS = 5
NEED_TOKENS = 4
WORDS = {"what": 48, "choose": 48}
NO_KEY = "none"
THINKING_TOKENS = 2048


class OpenAIEndpoint:
    """Chat completions of `model` at `url` (default: api.openai.com).

    `key` may be None for a local server. `timeout` is in seconds for one try; the client itself tries again
    (`retries` times) after 429, 5xx and dropped connections. Raises MissingExtra where the `openai` package is
    not installed, UsageError for an empty model name or a missing key where OpenAI itself is asked.
    """

    def __init__(
        self,
        model: str,
        url: str | None = None,
        key: str | None = None,
        temperature: float = 0.1,
        timeout: float = 60.0,
        max_tokens: int = 256,
        retries: int = 2,
    ) -> None:
        if not model:
            raise UsageError("the endpoint needs a model name: --llm openai:MODEL")
        if url is None and not key:
            raise UsageError(
                "openai needs a key: set OPENAI_API_KEY, or name a server of your own with --llm-url"
            )
        self.model, self.url, self.temperature, self.max_tokens = model, url, temperature, max_tokens
        self._client = _client(url, key, timeout, retries)
        self._refused: set[str] = set()

    @property
    def announcement(self) -> str:
        """Where questions and knowledge go, for the user."""
        return f"LLM: {self.model} at {self._where}; questions and knowledge are sent there"

    @property
    def _where(self) -> str:
        return self.url or "https://api.openai.com/v1"

    def reply(self, request: Request) -> Reply:
        """Raises LLMError, one line that names the URL and the remedy, where no reply can be had."""
        if request.kind == "need":
            return self._need(request)
        return Reply(self._text(self._complete(request, WORDS.get(request.kind, self.max_tokens))))

    def _need(self, request: Request) -> Reply:
        answer = self._complete(request, NEED_TOKENS, probabilities=True)
        text = self._text(answer)
        yes = from_probabilities(_first_tokens(answer))
        return Reply(text, from_text(text) if yes is None else yes)

    def _complete(self, request: Request, tokens: int, probabilities: bool = False) -> Any:
        """The server's answer. A parameter that it refuses is left out, now and from then on."""
        import openai

        while True:
            given = self._parameters(tokens, probabilities)
            try:
                return self._client.chat.completions.create(
                    model=self.model, messages=cast(Any, messages(request)), **given
                )
            except openai.BadRequestError as error:
                refused = _refused(str(error).lower(), given)
                if refused is None:
                    raise self._failure(error) from error
                self._refused.add(refused)
            except (openai.OpenAIError, ValueError, TypeError) as error:
                raise self._failure(error) from error

    def _parameters(self, tokens: int, probabilities: bool) -> dict[str, Any]:
        given: dict[str, Any] = {"temperature": self.temperature, "max_tokens": tokens}
        if probabilities:
            given |= {"logprobs": True, "top_logprobs": TOP_TOKENS}
        if "max_tokens" in self._refused:
            given["max_completion_tokens"] = tokens + THINKING_TOKENS
        if "logprobs" in self._refused:
            given.pop("top_logprobs", None)
        return {name: value for name, value in given.items() if name not in self._refused}

    def _text(self, answer: Any) -> str:
        """The reply's text; LLMError where the answer is not a chat completion (a web page, say)."""
        try:
            text = answer.choices[0].message.content
        except (AttributeError, IndexError, TypeError):
            raise LLMError(
                f"{self._where} sent no chat completion for {self.model!r}: is this an OpenAI-compatible URL (…/v1)?"
            ) from None
        return str(text).strip() if text else ""

    def _failure(self, error: Exception) -> LLMError:
        import openai

        where = self._where
        reason = " ".join(str(error).split())[:200]
        if isinstance(error, openai.APITimeoutError):
            return LLMError(
                f"{where} did not answer in time: ask again, or choose a faster model than {self.model!r}"
            )
        if isinstance(error, openai.APIConnectionError):
            return LLMError(f"{where} can't be reached: start the server, or correct --llm-url")
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return LLMError(f"{where} refused the key: set OPENAI_API_KEY to one that may use {self.model!r}")
        if isinstance(error, openai.NotFoundError):
            return LLMError(
                f"{where} knows no model {self.model!r} or no such path: correct --llm or --llm-url ({reason})"
            )
        if isinstance(error, openai.RateLimitError):
            return LLMError(f"{where} takes no more requests at present: wait and ask again ({reason})")
        if isinstance(error, openai.APIStatusError):
            return LLMError(f"{where} failed with status {error.status_code}: {reason}")
        return LLMError(
            f"{where} sent a reply that can't be read: is this an OpenAI-compatible URL (…/v1)? ({reason})"
        )


def _refused(reason: str, given: dict[str, Any]) -> str | None:
    """The parameter that a 400 is about, as far as one can tell: newer models refuse some of the usual ones."""
    if "max_completion_tokens" in reason and "max_tokens" in given:
        return "max_tokens"
    if "temperature" in reason and "support" in reason and "temperature" in given:
        return "temperature"
    return "logprobs" if "logprobs" in given else None


def _first_tokens(answer: Any) -> list[tuple[str, float]]:
    """(token, log-probability) of the first position; empty where the server gives none."""
    try:
        return [(top.token, top.logprob) for top in answer.choices[0].logprobs.content[0].top_logprobs]
    except (AttributeError, IndexError, TypeError):
        return []


def _client(url: str | None, key: str | None, timeout: float, retries: int) -> "OpenAI":
    try:
        from openai import OpenAI
    except ImportError:
        raise MissingExtra("the openai package is not installed: pip install 'kcard[openai]'") from None
    return OpenAI(base_url=url, api_key=key or NO_KEY, timeout=timeout, max_retries=retries)
