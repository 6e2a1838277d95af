"""Run an evaluation: answer, score and store each question."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Protocol, cast

from kcard.batching import QUESTIONS, batched
from kcard.errors import KcardError, LLMError, one_line
from kcard.evaluation.metrics import accuracy, exact_match, f1, substring
from kcard.evaluation.runs.run import Call, EvalResult, Run
from kcard.evaluation.tasks.base import Item, TaskData
from kcard.interfaces import LLM, Answerer, Batching, Prompting, Windowed
from kcard.llms.prompts import render
from kcard.types import Answer, Question, Reply, Request, distinct_texts

__all__ = ["Recorder", "Runner", "Store", "make_failed_result", "make_result", "score_prediction"]


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


def make_result(task: str, setting: str, item: Item, answer: Answer, calls: Sequence[Call]) -> EvalResult:
    """Return the result of an answered question."""
    trace = _rounded(answer.to_json())
    trace.pop("seconds", None)
    prediction = answer.choice or "" if item.choices else answer.answer
    seconds = round(answer.seconds, 4)
    return _result(task, setting, item, calls, prediction=prediction, seconds=seconds, trace=trace)


def make_failed_result(task: str, setting: str, item: Item, error: str, calls: Sequence[Call]) -> EvalResult:
    """Return the result of a question that failed, which counts as wrong."""
    return _result(task, setting, item, calls, prediction="", error=error)


def _result(task: str, setting: str, item: Item, calls: Sequence[Call], **outcome: Any) -> EvalResult:
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


# An LLM that records its requests by the question that they were made for.


class Recorder:
    """Wraps an LLM and records its requests; `collect` returns those of a question. Thread-safe.

    A request belongs to a question if its text is the question's, or the beginning of it if it was cut to fit into a
    window. Other requests belong to the question that is collected next, so every request is collected once.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._lock = threading.Lock()
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)
        if isinstance(llm, Batching):
            self.reply_all = partial(self._record_all, llm)  # makes the wrapper Batching too

    @property
    def announcement(self) -> str:
        """The LLM's announcement for the user; "" if it has none."""
        return str(getattr(self._llm, "announcement", ""))

    @property
    def concurrency(self) -> int:
        """Number of requests that the LLM handles at a time."""
        return int(getattr(self._llm, "concurrency", 1))

    @property
    def window(self) -> int | None:
        """Maximum number of tokens of a request; None if unknown."""
        return self._llm.window if isinstance(self._llm, Windowed) else None

    def count(self, request: Request) -> int:
        """Count the tokens of a request. Only for LLMs with a window."""
        return cast(Windowed, self._llm).count(request)

    def reply(self, request: Request) -> Reply:
        """Return the LLM's reply. Raises what the LLM raises, after recording it."""
        started = time.perf_counter()
        try:
            reply = self._llm.reply(request)
        except KcardError as error:
            self._record(request, error, time.perf_counter() - started)
            raise
        self._record(request, reply, time.perf_counter() - started)
        return reply

    def _record_all(self, llm: Batching, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """Yield the replies of a batch, and record them with equal shares of its seconds."""
        started = time.perf_counter()
        replies = list(llm.reply_all(requests))
        for request, reply in zip(requests, replies, strict=True):
            self._record(request, reply, (time.perf_counter() - started) / len(replies))
        yield from replies

    def collect(self, question: str, others: Sequence[str] = ()) -> tuple[Call, ...]:
        """Return the requests for this question, in order, and remove them.

        `others`: the questions that are collected later, whose requests stay.
        """
        with self._lock:
            texts_of_others = {
                text
                for text in self._calls
                if text and text != question and any(other.startswith(text) for other in others)
            }
            own_texts = [text for text in self._calls if text not in texts_of_others]
            return tuple(call for text in own_texts for call in self._calls.pop(text))

    def _record(self, request: Request, reply: Reply | KcardError, seconds: float) -> None:
        prompt = self._llm.prompt(request) if isinstance(self._llm, Prompting) else render(request)
        if isinstance(reply, Reply):
            call = Call(request.kind, prompt, reply.text, reply.tokens_in, reply.tokens_out, seconds)
        else:
            call = Call(request.kind, prompt, "", seconds=seconds, error=one_line(reply))
        with self._lock:
            self._calls[request.question].append(call)


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
    recorder  the LLM of all answerers
    batch     number of questions to answer at a time
    """

    run: Run
    tasks: Mapping[str, TaskData]
    question: Callable[[TaskData, Item], Question]
    answerer: Callable[[str], Answerer]
    recorder: Recorder
    store: Store
    batch: int = QUESTIONS

    def ask(self, missing: Sequence[Key], report: Callable[[int], None] | None = None) -> None:
        """Answer these questions and store the results; `report` is called with the number that are done.

        A question that fails becomes a result with its error. After GIVE_UP consecutive failures, the remaining
        questions are skipped: they become failed results too, which resuming the run asks again.
        """
        done, streak = 0, 0
        for task, setting, questions in self._batches(missing):
            results: Iterator[EvalResult]
            if streak >= GIVE_UP:
                results = (make_failed_result(task, setting, item, SKIPPED, ()) for _, item in questions)
            else:
                results = self._answer_each(task, setting, questions)
            for result in results:
                self.store.append(self.run, [result])
                done, streak = done + 1, streak + 1 if result.error else 0
                if report:
                    report(done)

    def _batches(self, missing: Sequence[Key]) -> Iterator[tuple[str, str, list[ItemQuestion]]]:
        """Yield the missing questions of each task and setting in batches, in the order of the run.

        The questions of a batch have distinct texts, since the recorder assigns requests by text.
        """
        remaining = set(missing)
        for task in self.run.plan.tasks:
            by_id = {item.id: item for item in self.tasks[task.name].items}
            for setting in self.run.plan.settings:
                items = [by_id[i] for i in task.ids if (task.name, setting, i) in remaining]
                for chunk in batched(items, self.batch):
                    questions = [self.question(self.tasks[task.name], item) for item in chunk]
                    rest = zip(questions, chunk, strict=True)
                    for group in distinct_texts(questions):
                        yield task.name, setting, list(islice(rest, len(group)))

    def _answer_each(
        self, task: str, setting: str, questions: Sequence[ItemQuestion], later: Sequence[str] = ()
    ) -> Iterator[EvalResult]:
        """Yield a result for each question; `later`: questions that are answered after these.

        If an answerer raises, the remaining questions are answered one by one, so that one bad question does not fail
        the others. An answerer with `outcomes`, such as Pipeline, yields errors in place of answers instead.
        """
        answerer = self.answerer(setting)
        ask: Callable[[Sequence[Question]], Iterator[Answer | KcardError]]
        ask = getattr(answerer, "outcomes", answerer.answers)
        outcomes: Iterator[Answer | KcardError] | None = None
        for nth, (question, item) in enumerate(questions):
            waiting = [*(other.text for other, _ in questions[nth + 1 :]), *later]
            try:
                if outcomes is None:
                    outcomes = iter(ask([q for q, _ in questions]))
                outcome = next(outcomes)
            except StopIteration:
                raise LLMError(f"setting {setting} answered {nth} of {len(questions)} questions") from None
            except KcardError as error:
                # The batch failed: answer this question and the following ones in batches of one.
                if len(questions) > 1:
                    for at, other in enumerate(questions[nth:], nth + 1):
                        yield from self._answer_each(
                            task, setting, [other], [*(q.text for q, _ in questions[at:]), *later]
                        )
                    return
                outcome = error
            # The result, with the question's requests.
            calls = self.recorder.collect(question.text, waiting)
            if isinstance(outcome, KcardError):
                yield make_failed_result(task, setting, item, one_line(outcome), calls)
            else:
                yield make_result(task, setting, item, outcome, calls)
