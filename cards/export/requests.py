"""Requests to an engine, as curl sends them: one for a document, and those that show whether the card is applied."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from kcard.cards.export.engines import Engine
from kcard.cards.export.prepared import Prepared
from kcard.cards.export.prompt import Expected
from kcard.sampling import Sampling

__all__ = ["asking", "probing", "tokenizing"]


def asking(card: Prepared, cards: Sequence[Prepared], engine: Engine, sampling: Sampling) -> str:
    """The command that has the card write a document on a question of its own."""
    question = card.prompt.question
    if engine.name == "ollama":
        return _curl(engine, "/api/generate", {"model": card.name, "prompt": question, "stream": False})
    body = _model(card, cards, engine) | {"prompt": card.prompt.text(question)}
    settings = {"max_tokens": sampling.tokens, "temperature": sampling.temperature, "top_k": sampling.top_k}
    return _curl(engine, "/v1/completions", body | settings)


def probing(card: Prepared, cards: Sequence[Prepared], engine: Engine, row: Expected) -> str:
    """The command that shows the likeliest next token after a prompt of the fingerprint."""
    if engine.name == "ollama":
        options = {"temperature": 0, "num_predict": 1}
        body: dict[str, Any] = {"model": card.name, "prompt": row.text, "raw": True, "stream": False}
        return _curl(
            engine, "/api/generate", body | {"options": options, "logprobs": True, "top_logprobs": 3}
        )
    body = _model(card, cards, engine) | {"prompt": list(row.ids)}
    return _curl(engine, "/v1/completions", body | {"max_tokens": 1, "temperature": 0, "logprobs": 3})


def tokenizing(card: Prepared, engine: Engine) -> str:
    """The command that shows which tokens llama.cpp makes of the prompt of `asking`."""
    return _curl(
        engine, "/tokenize", {"content": card.prompt.text(card.prompt.question), "add_special": True}
    )


def _model(card: Prepared, cards: Sequence[Prepared], engine: Engine) -> dict[str, Any]:
    """What names the card in a request."""
    if engine.name == "sglang" and card.adapter is not None:
        return {"model": f"{card.base_argument}:{card.name}"}
    if engine.name == "llama.cpp" and card.adapter is not None:
        scales = [{"id": i, "scale": 1 if other is card else 0} for i, other in enumerate(cards)]
        return {"lora": scales}
    return {"model": card.name}


def _curl(engine: Engine, path: str, body: dict[str, Any]) -> str:
    url = f"http://127.0.0.1:{engine.port}{path}"
    data = shlex.quote(json.dumps(body, ensure_ascii=False))
    return f"curl {url} \\\n  -H 'Content-Type: application/json' \\\n  -d {data}"
