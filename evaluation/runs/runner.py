"""Run an evaluation: answer, score and store each question."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kcard.batching import QUESTIONS, FailureStreak, batched
from kcard.errors import KcardError, LLMError, one_line
from kcard.evaluation.metrics import accuracy, exact_match, f1, substring
from kcard.evaluation.runs.run import EvalResult, RecordedCall, Run
from kcard.evaluation.tasks.base import Item, TaskData
from kcard.events import Event, OnEvent, ignore
from kcard.interfaces import LLM, Answerer
from kcard.llms.prompts import render
from kcard.types import Answer, Call, Question, Reply

# Results of questions, with their scores.

DIGITS = 6  # of scores in a trace; further digits depend on the batch in which they were computed


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
    task: str, setting: str, item: Item, answer: Answer, calls: Sequence[RecordedCall]
) -> EvalResult:
    """Return the result of an answered question."""
    trace = _rounded(answer.to_json())
    trace.pop("seconds", None)
    prediction = answer.choice or "" if item.choices else answer.answer
    seconds = round(answer.seconds, 4)
    return _result(task, setting, item, calls, prediction=prediction, seconds=seconds, trace=trace)


def make_failed_result(
    task: str, setting: str, item: Item, error: str, calls: Sequence[RecordedCall]
) -> EvalResult:
    """Return the result of a question that failed, which counts as wrong."""
    return _result(task, setting, item, calls, prediction="", error=error)


def _result(task: str, setting: str, item: Item, calls: Sequence[RecordedCall], **outcome: Any) -> EvalResult:
    right = score_prediction(item, outcome["prediction"])
    return EvalResult(
        task=task,
        setting=setting,
        id=item.id,
        question=item.question,
        answers=item.answers,
        scores=dict.fromkeys(right, 0.0) if outcome.get("error") else right,
        choices={choice.name: choice.description for choice in item.choices},
        group=item.group,
        popularity=item.popularity,
        calls=tuple(calls),
        tokens_in=_sum([call.tokens_in for call in calls if not call.error]),
        tokens_out=_sum([call.tokens_out for call in calls if not call.error]),
        **outcome,
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    """Return the sum; None if a count is unknown."""
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if len(numbers) == len(counts) else None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


GIVE_UP = 16  # consecutive failures, after which the endpoint is considered down
SKIPPED = f"skipped after {GIVE_UP} consecutive failures"

Key = tuple[str, str, str]
ItemQuestion = tuple[Question, Item]


class Store(Protocol):
    """Stores the results of a run."""

    def append(self, run: Run, results: Sequence[EvalResult]) -> None:
        """Store results, all or none; each replaces an earlier result of the same question and setting."""
        ...


@dataclass(frozen=True)
class Runner:
    """Answers the questions of a run.

    tasks     the run's tasks by name
    question  makes a question, with demonstrations, from an item of a task
    answerer  makes the answerer of a setting, when its first question is due
    llm       of all answerers
    batch     number of questions to answer at a time
    """

    run: Run
    tasks: Mapping[str, TaskData]
    question: Callable[[TaskData, Item], Question]
    answerer: Callable[[str], Answerer]
    llm: LLM
    store: Store
    batch: int = QUESTIONS

    def ask(self, missing: Sequence[Key], on_event: OnEvent = ignore) -> None:
        """Answer these questions and store the results; `on_event` is called with the number of those done.

        A question that fails becomes a result with its error. After GIVE_UP consecutive failures, the remaining
        questions are skipped: they become failed results too, which resuming the run asks again.
        """
        done, streak = 0, FailureStreak(GIVE_UP)
        for task, setting, questions in self._batches(missing):
            results: Iterator[EvalResult]
            if streak.is_over:
                results = (make_failed_result(task, setting, item, SKIPPED, ()) for _, item in questions)
            else:
                results = self._answer_each(task, setting, questions)
            for result in results:
                self.store.append(self.run, [result])
                done += 1
                streak.record(bool(result.error))
                on_event(Event("asking", done=done, total=len(missing)))

    def _batches(self, missing: Sequence[Key]) -> Iterator[tuple[str, str, list[ItemQuestion]]]:
        """Yield the missing questions of each task and setting in batches, in the order of the run."""
        remaining = set(missing)
        for task in self.run.plan.tasks:
            by_id = {item.id: item for item in self.tasks[task.name].items}
            for setting in self.run.plan.settings:
                items = [by_id[i] for i in task.ids if (task.name, setting, i) in remaining]
                for chunk in batched(items, self.batch):
                    questions = [(self.question(self.tasks[task.name], item), item) for item in chunk]
                    yield task.name, setting, questions

    def _answer_each(
        self, task: str, setting: str, questions: Sequence[ItemQuestion]
    ) -> Iterator[EvalResult]:
        """Yield a result for each question."""
        outcomes = self.answerer(setting).outcomes([question for question, _ in questions])
        for nth, (question, item) in enumerate(questions):
            outcome = next(outcomes, None)
            if outcome is None:
                raise LLMError(f"setting {setting} answered {nth} of {len(questions)} questions")
            calls = [self._call(call) for call in question.trace.calls]
            if isinstance(outcome, KcardError):
                yield make_failed_result(task, setting, item, one_line(outcome), calls)
            else:
                yield make_result(task, setting, item, outcome, calls)

    def _call(self, call: Call) -> RecordedCall:
        prompt = self.llm.prompt(call.request) or render(call.request)
        reply = call.reply or Reply("")
        return RecordedCall(
            call.request.kind, prompt, reply.text, reply.tokens_in, reply.tokens_out, call.seconds, call.error
        )
