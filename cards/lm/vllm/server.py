"""One vLLM server: the requests of its API that cards need, and its refusals as errors of one line.

It knows token ids and names of models, no cards. The API is that of vLLM 0.32: OpenAI's completions with vLLM's own
parameters, and the loading of LoRA adapters while it runs (docs.vllm.ai/en/latest/features/lora).
"""

import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from kcard.errors import LLMError, ModelUnavailable, one_line
from kcard.openai_client import connected

__all__ = ["CONCURRENCY", "Gone", "Row", "Server", "ServerModel"]

CONCURRENCY = 64  # requests at a time; the server batches what is there
TIMEOUT = 120.0  # seconds; the first request for log-probabilities has taken 24 s to compile
# Whatever generation_config.json on the server says: cards are sampled as kcard says.
PLAIN = {"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
PLAIN_EXTRA = {"min_p": 0.0, "repetition_penalty": 1.0, "ignore_eos": True, "return_token_ids": True}


class Gone(Exception):
    """The server has no model of that name (any more)."""


@dataclass(frozen=True)
class ServerModel:
    """A model of the server.

    root     the folder or repository that it was loaded from, as the server sees it
    parent   the name of an adapter's base; None for a base or a whole model
    context  most tokens of prompt and continuation, where the server says so
    """

    name: str
    root: str
    parent: str | None
    context: int | None


@dataclass(frozen=True)
class Row:
    """A document to write. `ends`: token ids at which it ends; `seed` counts above temperature 0."""

    prompt: tuple[int, ...]
    tokens: int
    temperature: float
    top_k: int
    seed: int
    ends: tuple[int, ...]


class Server:
    """The server at `url`, with or without /v1.

    Nothing is tried twice. A request that has no answer after `timeout` seconds raises LLMError, as do a server that
    is not there and an answer that can't be read; ModelUnavailable where the server's settings are in the way.
    """

    def __init__(self, url: str, key: str | None = None, timeout: float = TIMEOUT) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._timeout = timeout
        self._client = connected(f"{self.url}/v1", key, timeout, retries=0)
        weakref.finalize(self, self._client.close)
        self._free = BoundedSemaphore(CONCURRENCY)

    def models(self) -> list[ServerModel]:
        """Bases and adapters, the adapter that was loaded first before the others."""
        with self._explained():
            return [_model(model.to_dict()) for model in self._client.models.list().data]

    def adapters_at_once(self) -> int | None:
        """The server's --max-loras, which its metrics tell once an adapter was asked; None where it is not known."""
        with suppress(LLMError), self._explained():  # metrics may be switched off
            text = self._client.get(f"{self.url}/metrics", cast_to=str)
            if found := re.search(r'vllm:lora_requests_info\{[^}]*max_lora="(\d+)"', text):
                return max(1, int(found[1]))
        return None

    def load(self, name: str, folder: Path) -> None:
        """Load the adapter in `folder`, which the server must see under that path. It may be there already.

        Raises ModelUnavailable where the server can't load adapters, does not see the folder, or refuses the adapter.
        """
        import openai

        body = {"lora_name": name, "lora_path": str(folder)}
        with self._explained():
            try:
                self._client.post("/load_lora_adapter", cast_to=str, body=body)
            except (openai.BadRequestError, openai.NotFoundError, openai.InternalServerError) as error:
                if "already been loaded" not in str(error):
                    raise ModelUnavailable(self._refusal(name, folder, error)) from error

    def unload(self, name: str) -> None:
        """Drop an adapter; one that is not there is gone already."""
        import openai

        with self._explained(), suppress(openai.NotFoundError):
            self._client.post("/unload_lora_adapter", cast_to=str, body={"lora_name": name})

    def write(self, model: str, row: Row) -> tuple[list[int], bool]:
        """The new token ids, without the end, and whether the model itself ended the document. Raises Gone."""
        extra = PLAIN_EXTRA | {"top_k": row.top_k, "stop_token_ids": list(row.ends)}
        given = {"temperature": row.temperature, "max_tokens": row.tokens, **PLAIN}
        if row.temperature > 0:
            given["seed"] = row.seed
        choice = self._complete(model, row.prompt, given, extra)
        ids: Any = choice.get("token_ids")
        if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
            raise self._unreadable("token_ids")
        ended = choice.get("finish_reason") == "stop"
        return (ids[:-1] if ended and ids and ids[-1] in row.ends else ids), ended

    def log_probability(self, model: str, prompt: Sequence[int], token: int, salt: str) -> float:
        """The natural log-probability, 0 or less, of a token after a prompt. Raises Gone.

        The token is forced, and its log-probability is that of before (vLLM's --logprobs-mode raw_logprobs, the
        default). vLLM's prompt_logprobs would need one request for many tokens, but leave out an adapter's change to
        the head, and on a CPU end the server where another adapter's request is in the batch (0.32).
        Prefixes are cached for requests with the same `salt` alone, so that nobody else finds what an adapter that
        is not applied has computed.
        """
        extra = {
            "allowed_token_ids": [token],
            "cache_salt": salt,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        given = {"temperature": 0.0, "max_tokens": 1, "logprobs": 0}
        choice = self._complete(model, prompt, given, extra)
        try:
            (value,) = choice["logprobs"]["token_logprobs"]
            if choice["token_ids"] != [token]:
                raise self._unreadable("token_ids")
            return float(value)
        except (LookupError, TypeError, ValueError):
            raise self._unreadable("logprobs") from None

    def _complete(
        self, model: str, prompt: Sequence[int], given: dict[str, Any], extra: dict[str, Any]
    ) -> dict[str, Any]:
        """The one choice of the answer."""
        import openai

        with self._explained(), self._free:
            try:
                answer: Any = self._client.completions.create(
                    model=model, prompt=[list(prompt)], **given, extra_body=extra
                )
            except openai.NotFoundError as error:
                raise Gone(one_line(error)) from error
            (choice,) = answer.to_dict()["choices"]
            found: dict[str, Any] = choice
            return found

    def _refusal(self, name: str, folder: Path, error: Exception) -> str:
        import openai

        reason = one_line(error)
        found_none = "No adapter found" in reason
        no_such_path = isinstance(error, openai.NotFoundError) and not found_none
        if no_such_path or "LoRA is not enabled" in reason:
            return (
                f"{self.url} does not load adapters while it runs: start it with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"
            )
        if found_none:
            return (
                f"{self.url} does not see the folder {folder}: let it see the folder under the same path (a shared "
                f"or mounted folder), or start it with --lora-modules {name}=PATH"
            )
        return f"{self.url} refuses the adapter in {folder}: {reason}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what the client raises, and an answer of another form, into an error of one line."""
        import openai

        try:
            yield
        except (openai.OpenAIError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise LLMError(f"the engine {self.url} {self._failure(error)}") from error

    def _failure(self, error: Exception) -> str:
        import openai

        reason = one_line(error, 200)
        if isinstance(error, openai.APITimeoutError):
            return f"did not answer within {self._timeout:g} s: try again"
        if isinstance(error, openai.APIConnectionError):
            return "can't be reached, or broke off: start vLLM there, or leave out --engine"
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return "refused the key: set VLLM_API_KEY to the key of its --api-key"
        if isinstance(error, openai.APIStatusError):
            return f"failed with status {error.status_code}: {reason}"
        return f"sent an answer that can't be read ({reason}): is it vLLM?"

    def _unreadable(self, what: str) -> LLMError:
        return LLMError(f"the engine {self.url} sent no {what} that can be read: is it vLLM 0.10 or later?")


def _model(found: dict[str, Any]) -> ServerModel:
    name = str(found["id"])
    return ServerModel(name, str(found.get("root") or name), found.get("parent"), found.get("max_model_len"))
