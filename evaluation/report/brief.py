"""A result without its long texts, so that those of a large run fit into memory together."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kcard.evaluation.runs.result import Result

__all__ = ["brief"]

TEXTS = ("text", "pruned", "evidence", "source")


def brief(result: Result) -> Result:
    """The result without the prompts of its calls and the texts of its passages, which are "" and left out."""
    trace = dict(result.trace)
    if isinstance(passages := trace.get("passages"), list):
        trace["passages"] = [_without_texts(p) if isinstance(p, dict) else p for p in passages]
    return replace(result, calls=tuple(replace(call, prompt="") for call in result.calls), trace=trace)


def _without_texts(passage: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in passage.items() if key not in TEXTS}
