"""A vLLM server: token ids and model names, no cards.

The API is that of vLLM 0.32: OpenAI's completions with vLLM's extra parameters, and loading LoRA adapters at runtime
(docs.vllm.ai/en/latest/features/lora).
"""

import re
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from kcard.connections import connected
from kcard.errors import LLMError, ModelUnavailable, one_line

CONCURRENCY = 64  # concurrent requests; the server batches them
TIMEOUT_SECONDS = 120.0  # the first request for log-probabilities has taken 24 s to compile
# Override the server's generation_config.json, so that sampling follows kcard's settings alone.
NEUTRAL_SAMPLING = {"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
NEUTRAL_EXTRAS = {"min_p": 0.0, "repetition_penalty": 1.0, "ignore_eos": True, "return_token_ids": True}


class ModelGone(Exception):
    """The server has no model of that name (any more)."""


@dataclass(frozen=True)
class ServerModel:
    """A model of the server.

    root     the folder or repository that it was loaded from, as the server sees it
    parent   the name of an adapter's base; None for a base or a whole model
    context  maximum tokens of prompt and continuation, if the server reports it
    """

    name: str
    root: str
    parent: str | None
    context: int | None


@dataclass(frozen=True)
class DocumentRequest:
    """A document to generate. `ends`: stop token ids; `seed` applies above temperature 0."""

    prompt: tuple[int, ...]
    tokens: int
    temperature: float
    top_k: int
    seed: int
    ends: tuple[int, ...]


class Server:
    """The server at `url`, with or without /v1.

    Nothing is retried. A request without an answer after `timeout` seconds, an unreachable server and a malformed
    answer raise LLMError; unsuitable server settings raise ModelUnavailable.
    """

    def __init__(self, url: str, key: str | None = None, timeout: float = TIMEOUT_SECONDS) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._timeout = timeout
        self._client = connected(f"{self.url}/v1", key, timeout, retries=0)
        weakref.finalize(self, self._client.close)
        self._free = BoundedSemaphore(CONCURRENCY)

    def models(self) -> list[ServerModel]:
        """Return bases and adapters, in the order in which adapters were loaded."""
        with self._explained():
            models = []
            for model in self._client.models.list().data:
                row: dict[str, Any] = model.to_dict()
                name, context = str(row["id"]), row.get("max_model_len")
                models.append(ServerModel(name, str(row.get("root") or name), row.get("parent"), context))
            return models

    def adapters_at_once(self) -> int | None:
        """Return the server's --max-loras, which its metrics report once an adapter was used; None if unknown."""
        with suppress(LLMError), self._explained():  # metrics may be disabled
            text = self._client.get(f"{self.url}/metrics", cast_to=str)
            match = re.search(r'vllm:lora_requests_info\{[^}]*max_lora="(\d+)"', text)
            if match:
                return max(1, int(match[1]))
        return None

    def load(self, name: str, folder: Path) -> None:
        """Load the adapter in `folder`, which the server must see under that path. It may be loaded already.

        Raises ModelUnavailable if the server can't load adapters, does not see the folder, or refuses the adapter.
        """
        import openai

        body = {"lora_name": name, "lora_path": str(folder)}
        with self._explained():
            try:
                self._client.post("/load_lora_adapter", cast_to=str, body=body)
            except (openai.BadRequestError, openai.NotFoundError, openai.InternalServerError) as error:
                if "already been loaded" not in str(error):
                    raise ModelUnavailable(self._explain_refusal(name, folder, error)) from error

    def unload(self, name: str) -> None:
        """Unload an adapter; does nothing if it is not loaded."""
        import openai

        with self._explained(), suppress(openai.NotFoundError):
            self._client.post("/unload_lora_adapter", cast_to=str, body={"lora_name": name})

    def generate(self, model: str, request: DocumentRequest) -> tuple[list[int], bool]:
        """Return the new token ids, without eos, and whether the model itself ended the document. Raises ModelGone."""
        extra = NEUTRAL_EXTRAS | {"top_k": request.top_k, "stop_token_ids": list(request.ends)}
        options = {"temperature": request.temperature, "max_tokens": request.tokens, **NEUTRAL_SAMPLING}
        if request.temperature > 0:
            options["seed"] = request.seed
        choice = self._complete(model, request.prompt, options, extra)
        ids: Any = choice.get("token_ids")
        if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
            raise self._unreadable_error("token_ids")
        ended = choice.get("finish_reason") == "stop"
        if ended and ids and ids[-1] in request.ends:
            ids = ids[:-1]
        return ids, ended

    def log_probability(self, model: str, prompt: Sequence[int], token: int, salt: str) -> float:
        """Return the natural log-probability, 0 or less, of a token after a prompt. Raises ModelGone.

        The token is forced, and its log-probability is the one before forcing (vLLM's --logprobs-mode raw_logprobs, the
        default). vLLM's prompt_logprobs would need one request for many tokens, but ignores an adapter's change to the
        head, and on a CPU crashes the server if another adapter's request is in the batch (0.32). Only requests with
        the same `salt` share the prefix cache, so that no other request reuses what an unapplied adapter computed.
        """
        extra = {
            "allowed_token_ids": [token],
            "cache_salt": salt,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        options = {"temperature": 0.0, "max_tokens": 1, "logprobs": 0}
        choice = self._complete(model, prompt, options, extra)
        try:
            (value,) = choice["logprobs"]["token_logprobs"]
            if choice["token_ids"] != [token]:
                raise self._unreadable_error("token_ids")
            return float(value)
        except (LookupError, TypeError, ValueError):
            raise self._unreadable_error("logprobs") from None

    def _complete(
        self, model: str, prompt: Sequence[int], options: dict[str, Any], extra: dict[str, Any]
    ) -> dict[str, Any]:
        import openai

        with self._explained(), self._free:
            try:
                answer: Any = self._client.completions.create(
                    model=model, prompt=[list(prompt)], **options, extra_body=extra
                )
            except openai.NotFoundError as error:
                raise ModelGone(one_line(error)) from error
            (choice,) = answer.to_dict()["choices"]
            reply: dict[str, Any] = choice
            return reply

    def _explain_refusal(self, name: str, folder: Path, error: Exception) -> str:
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
        """Turn client errors and malformed answers into a one-line error."""
        import openai

        try:
            yield
        except (openai.OpenAIError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise LLMError(f"the engine {self.url} {self._describe_failure(error)}") from error

    def _describe_failure(self, error: Exception) -> str:
        import openai

        reason = one_line(error, 200)
        if isinstance(error, openai.APITimeoutError):
            return f"did not answer within {self._timeout:g} s: try again"
        if isinstance(error, openai.APIConnectionError):
            return "can't be reached, or closed the connection: start vLLM there, or leave out --engine"
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return "refused the key: set VLLM_API_KEY to the key of its --api-key"
        if isinstance(error, openai.APIStatusError):
            return f"failed with status {error.status_code}: {reason}"
        return f"sent an answer that can't be read ({reason}): is it vLLM?"

    def _unreadable_error(self, what: str) -> LLMError:
        return LLMError(f"the engine {self.url} sent no {what} that can be read: is it vLLM 0.10 or later?")
