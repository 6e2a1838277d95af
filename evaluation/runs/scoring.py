"""A task's item and what was answered, as a result with its scores."""

from collections.abc import Mapping, Sequence
from typing import Any

from kcard.answer import Answer
from kcard.evaluation.classification import accuracy
from kcard.evaluation.metrics import exact_match, f1, substring
from kcard.evaluation.runs.result import Call, Result
from kcard.evaluation.tasks.task import Item

__all__ = ["answered", "failed", "scores"]

DIGITS = 6  # of scores in a trace; more depend on the batch that they were computed in


def scores(item: Item, prediction: str) -> dict[str, float]:
    """em, f1 and substring, in [0, 1]; of a multiple-choice question accuracy besides, which they equal."""
    if item.choices:
        return dict.fromkeys(("accuracy", "em", "f1", "substring"), accuracy(prediction, item.answers))
    return {
        "em": exact_match(prediction, item.answers),
        "f1": f1(prediction, item.answers),
        "substring": float(substring(prediction, item.answers)),
    }


def answered(task: str, setting: str, item: Item, answer: Answer, calls: Sequence[Call]) -> Result:
    """The result of an answered question."""
    trace = _rounded(answer.to_json())
    trace.pop("seconds", None)
    prediction = answer.choice or "" if item.choices else answer.answer
    seconds = round(answer.seconds, 4)
    return _result(task, setting, item, calls, prediction=prediction, seconds=seconds, trace=trace)


def failed(task: str, setting: str, item: Item, error: str, calls: Sequence[Call]) -> Result:
    """The result of a question without an answer, which counts as wrong."""
    return _result(task, setting, item, calls, prediction="", error=error)


def _result(task: str, setting: str, item: Item, calls: Sequence[Call], **found: Any) -> Result:
    right = scores(item, found["prediction"])
    return Result(
        task=task,
        setting=setting,
        id=item.id,
        question=item.question,
        answers=item.answers,
        scores=dict.fromkeys(right, 0.0) if found.get("error") else right,
        choices={choice.name: choice.description for choice in item.choices},
        group=item.group,
        popularity=item.popularity,
        calls=tuple(calls),
        tokens_in=_sum([call.tokens_in for call in calls if not call.error]),
        tokens_out=_sum([call.tokens_out for call in calls if not call.error]),
        **found,
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    """None where one is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value
