"""A result without its long texts, so that those of a large run fit into memory together."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kcard.evaluation.metrics import substring
from kcard.evaluation.runs.result import Result

__all__ = ["brief", "holds"]

TEXTS = ("text", "pruned", "evidence", "source")


def brief(result: Result) -> Result:
    """The result without the prompts of its calls and the texts of its passages, which are "" and left out; a passage
    tells instead whether it `holds` an accepted answer."""
    trace = dict(result.trace)
    if isinstance(passages := trace.get("passages"), list):
        trace["passages"] = [_without_texts(p, result) if isinstance(p, dict) else p for p in passages]
    return replace(result, calls=tuple(replace(call, prompt="") for call in result.calls), trace=trace)


def holds(passage: Mapping[str, Any], result: Result) -> bool:
    """Whether a passage of the result's trace, brief or whole, holds an accepted answer."""
    if "holds" in passage:
        return bool(passage["holds"])
    return substring(str(passage.get("text")), [result.choices.get(a, a) for a in result.answers])


def _without_texts(passage: Mapping[str, Any], result: Result) -> dict[str, Any]:
    kept = {key: value for key, value in passage.items() if key not in TEXTS}
    return kept | {"holds": holds(passage, result)}
