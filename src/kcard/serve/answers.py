"""Answers in OpenAI's formats. What else is known of them (cards, passages, citations) is in the field `kcard`."""

import json
import secrets
import time
from collections.abc import Iterable, Iterator
from typing import Any

from kcard.answer import Answer
from kcard.serve.answer_cache import Answered

NOTHING = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}  # usage
__all__ = [
    "NOTHING",
    "chat_chunks",
    "chat_completion",
    "completion",
    "encoded",
    "headers",
    "sse",
    "trace_headers",
    "usage_of",
]


def usage_of(answer: Answer) -> dict[str, int]:
    """The LLM's tokens; 0 where the LLM does not count them."""
    used = answer.usage
    read = (used.tokens_in or 0) if used else 0
    wrote = (used.tokens_out or 0) if used else 0
    return {"prompt_tokens": read, "completion_tokens": wrote, "total_tokens": read + wrote}


def chat_completion(model: str, answer: Answer) -> dict[str, Any]:
    message = {"role": "assistant", "content": answer.answer}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {
        **_head("chatcmpl", "chat.completion", model),
        "choices": [choice],
        "usage": usage_of(answer),
        "kcard": answer.to_json(),
    }


def chat_chunks(model: str, answer: Answer, *, include_usage: bool) -> Iterator[dict[str, Any]]:
    """The answer as chunks of a stream; the last one that has a choice carries the field `kcard`."""
    head = _head("chatcmpl", "chat.completion.chunk", model)

    def chunk(delta: dict[str, str], finish: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    yield chunk({"content": answer.answer})
    yield {**chunk({}, "stop"), "kcard": answer.to_json()}
    if include_usage:
        yield {**head, "choices": [], "usage": usage_of(answer)}


def completion(model: str, answers: list[Answer]) -> dict[str, Any]:
    counted = [usage_of(answer) for answer in answers]
    return {
        **_head("cmpl", "text_completion", model),
        "choices": [
            {"index": at, "text": answer.answer, "logprobs": None, "finish_reason": "stop"}
            for at, answer in enumerate(answers)
        ],
        "usage": {name: sum(used[name] for used in counted) for name in counted[0]},
        "kcard": [answer.to_json() for answer in answers],
    }


def headers(*answered: Answered) -> dict[str, str]:
    answers = [one.answer for one in answered]
    cards = (card for answer in answers for card in answer.cards)
    found = trace_headers(cards, any(answer.gate.fired for answer in answers))
    return found | ({"X-Kcard-Cache": "hit"} if all(one.cached for one in answered) else {})


def trace_headers(cards: Iterable[str], fired: bool) -> dict[str, str]:
    """The cards that were asked, and whether the gate asked any, for clients that read no further fields."""
    return {"X-Kcard-Cards": ",".join(dict.fromkeys(cards)), "X-Kcard-Gate": "cards" if fired else "no cards"}


def encoded(content: Any) -> bytes:
    """JSON. An LLM's server may send halves of characters, which UTF-8 does not have: they become "?"."""
    return json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")


def sse(chunk: dict[str, Any] | None) -> bytes:
    """A server-sent event; None: the end of the stream."""
    return b"data: [DONE]\n\n" if chunk is None else b"data: " + encoded(chunk) + b"\n\n"


def _head(prefix: str, kind: str, model: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
    }
