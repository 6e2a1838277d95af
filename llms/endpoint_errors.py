"""What an OpenAI-compatible endpoint's refusals mean, as one line with URL and remedy."""

import re
from collections.abc import Mapping
from typing import Any

from kcard.errors import LLMError, RequestRefused

__all__ = ["context_tokens", "failure", "refused_parameter", "too_long"]

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


def too_long(reason: str) -> bool:
    """Whether a 400 is about a prompt, or a reply's limit, that is longer than what the model reads and writes."""
    return TOO_LONG.search(reason.lower()) is not None


def context_tokens(reason: str) -> int | None:
    """The tokens that the model reads and writes at a time, where the refusal names them."""
    found = CONTEXT.search(reason.lower())
    return int(found.group(1).replace(",", "")) if found else None


def refused_parameter(reason: str, given: Mapping[str, Any]) -> str | None:
    """The parameter that a 400 is about, as far as one can tell: newer models refuse some of the usual ones."""
    reason = reason.lower()
    if "max_completion_tokens" in reason and "max_tokens" in given:
        return "max_tokens"
    if "temperature" in reason and "support" in reason and "temperature" in given:
        return "temperature"
    return next((name for name in ("logprobs", "stream_options") if name in given), None)


def failure(where: str, model: str, error: Exception) -> LLMError:
    """The error of the openai package or of the connection, as ours."""
    import openai

    reason = " ".join(str(error).split())[:200]
    if isinstance(error, openai.APITimeoutError):
        return LLMError(f"{where} did not answer in time: try again, or choose a faster model than {model!r}")
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
        refused = error.status_code in OF_THE_REQUEST
        kind = RequestRefused if refused else LLMError
        return kind(f"{where} failed with status {error.status_code}: {reason}")
    return LLMError(
        f"{where} sent a reply that can't be read: is this an OpenAI-compatible URL (…/v1)? ({reason})"
    )
