"""Results of questions under the settings of a run: scores, calls of the LLM, and the trace of the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kcard.evaluation.metrics import accuracy, exact_match, f1, round_floats, substring
from kcard.evaluation.tasks.base import Item
from kcard.trace import add_counts
from kcard.types import Answer

# Metrics that are defined for whole tasks, or graded, with the metric that decides whether a single question is right.
OF_A_TASK = {"balanced-accuracy": "accuracy", "macro-f1": "accuracy"}
BY_QUESTION = {"f1": "em", **OF_A_TASK}


@dataclass(frozen=True)
class RecordedCall:
    """A request to the LLM: the prompt as sent, the reply, tokens (None if the backend reports none) and seconds.

    `error`: why there is no reply; "" if there is one.
    """

    kind: str
    prompt: str
    reply: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class EvalResult:
    """The result of a question of a task under a setting, such as "top-down:auto".

    answers     the accepted answers
    prediction  the answer; "" if the question failed
    scores      by metric, in [0, 1]: em, f1, substring, and accuracy for multiple choice
    popularity  of the question's subject (Item.popularity)
    trace       the answer as `kcard ask --json` prints it; {} if the question failed
    error       why there is no answer; "" if there is one
    """

    task: str
    setting: str
    id: str
    question: str
    answers: tuple[str, ...]
    prediction: str
    scores: Mapping[str, float]
    choices: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    popularity: float | None = None
    calls: tuple[RecordedCall, ...] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    seconds: float = 0.0
    trace: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    def score(self, metric: str) -> float:
        """Return the score in [0, 1]; for a metric of whole tasks, by accuracy. 0 without a score."""
        return self.scores.get(metric, self.scores.get(BY_QUESTION.get(metric, ""), 0.0))

    def is_right(self, metric: str) -> bool:
        """Return whether the question counts as answered."""
        return self.scores.get(BY_QUESTION.get(metric, metric), 0.0) >= 1.0

    @property
    def passages(self) -> list[Mapping[str, Any]]:
        """The passages of the trace, which may have been edited by hand."""
        return [passage for passage in self.trace.get("passages", ()) if isinstance(passage, dict)]


# Results without their long texts, so that all results of a large run fit into memory.

TEXTS = ("text", "pruned", "evidence", "source")
NEED_CHARACTERS = 200  # at the end of a prompt, which hold the wording of a need


def drop_texts(result: EvalResult) -> EvalResult:
    """Return the result without the prompts of its calls, but for the end of a need's, and the texts of its passages.

    Each passage says instead, under "holds", whether it contains an accepted answer.
    """
    trace = dict(result.trace)
    if isinstance(trace.get("passages"), list):
        brief = []
        for passage in result.passages:
            left = {key: value for key, value in passage.items() if key not in TEXTS}
            brief.append(left | {"holds": holds_answer(passage, result)})
        trace["passages"] = brief
    calls = []
    for call in result.calls:
        prompt = call.prompt[-NEED_CHARACTERS:] if call.kind == "need" else ""
        calls.append(replace(call, prompt=prompt))
    return replace(result, calls=tuple(calls), trace=trace)


def holds_answer(passage: Mapping[str, Any], result: EvalResult) -> bool:
    """Return whether a passage of the result's trace, with or without its text, contains an accepted answer."""
    if "holds" in passage:
        return bool(passage["holds"])
    return substring(str(passage.get("text")), [result.choices.get(a, a) for a in result.answers])


def score_prediction(item: Item, prediction: str) -> dict[str, float]:
    """Score a prediction by em, f1 and substring, in [0, 1]; for multiple choice, all three and accuracy are equal."""
    if item.choices:
        return dict.fromkeys(("accuracy", "em", "f1", "substring"), accuracy(prediction, item.answers))
    return {
        "em": exact_match(prediction, item.answers),
        "f1": f1(prediction, item.answers),
        "substring": float(substring(prediction, item.answers)),
    }


def make_result(
    task: str, setting: str, item: Item, outcome: Answer | str, calls: Sequence[RecordedCall]
) -> EvalResult:
    """Return the result of a question: answered, or failed with this error, which counts as wrong."""
    answered: dict[str, Any] = {"prediction": "", "error": outcome}
    if isinstance(outcome, Answer):
        trace = round_floats(outcome.to_json())
        trace.pop("seconds", None)
        prediction = outcome.choice or "" if item.choices else outcome.answer
        answered = {"prediction": prediction, "seconds": round(outcome.seconds, 4), "trace": trace}
    right = score_prediction(item, answered["prediction"])
    return EvalResult(
        task=task,
        setting=setting,
        id=item.id,
        question=item.question,
        answers=item.answers,
        scores=right if isinstance(outcome, Answer) else dict.fromkeys(right, 0.0),
        choices={choice.name: choice.description for choice in item.choices},
        group=item.group,
        popularity=item.popularity,
        calls=tuple(calls),
        tokens_in=add_counts(call.tokens_in for call in calls if not call.error),
        tokens_out=add_counts(call.tokens_out for call in calls if not call.error),
        **answered,
    )
