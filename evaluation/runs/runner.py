"""Run an evaluation: ask, score and record each question.

It knows ways of answering, tasks and a store by their protocols only.
"""

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

__all__ = ["Recorder", "Runner", "Store", "answered", "failed", "scores"]


# A task's item and what was answered, as a result with its scores.

DIGITS = 6  # of scores in a trace; more depend on the batch that they were computed in


def scores(item: Item, prediction: str) -> dict[str, float]:
    """Return em, f1 and substring, in [0, 1]; for a multiple-choice question also accuracy, which they equal."""
    if item.choices:
        return dict.fromkeys(("accuracy", "em", "f1", "substring"), accuracy(prediction, item.answers))
    return {
        "em": exact_match(prediction, item.answers),
        "f1": f1(prediction, item.answers),
        "substring": float(substring(prediction, item.answers)),
    }


def answered(task: str, setting: str, item: Item, answer: Answer, calls: Sequence[Call]) -> EvalResult:
    """Return the result of an answered question."""
    trace = _rounded(answer.to_json())
    trace.pop("seconds", None)
    prediction = answer.choice or "" if item.choices else answer.answer
    seconds = round(answer.seconds, 4)
    return _result(task, setting, item, calls, prediction=prediction, seconds=seconds, trace=trace)


def failed(task: str, setting: str, item: Item, error: str, calls: Sequence[Call]) -> EvalResult:
    """Return the result of a question without an answer, which counts as wrong."""
    return _result(task, setting, item, calls, prediction="", error=error)


def _result(task: str, setting: str, item: Item, calls: Sequence[Call], **outcome: Any) -> EvalResult:
    right = scores(item, outcome["prediction"])
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
    """Return the sum; None where a count is not known."""
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if len(numbers) == len(counts) else None


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list | tuple) else value


# An LLM whose every request is recorded, for the questions that it was made for.


class Recorder:
    """The same LLM to whoever asks it; what was asked is collected question by question.

    A request belongs to the question that it holds or, where the question was cut to fit into a window, begins. Other
    requests belong to the question that is collected next, so everything is collected once. It is thread-safe.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._lock = threading.Lock()
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)
        if isinstance(llm, Batching):
            self.reply_all = partial(self._record_all, llm)  # so that this one is Batching too

    @property
    def announcement(self) -> str:
        """What answers, for the user; empty where the LLM does not say."""
        return str(getattr(self._llm, "announcement", ""))

    @property
    def concurrency(self) -> int:
        """Requests that the LLM takes at a time."""
        return int(getattr(self._llm, "concurrency", 1))

    @property
    def window(self) -> int | None:
        """The most tokens that a request may take; None: not known."""
        return self._llm.window if isinstance(self._llm, Windowed) else None

    def count(self, request: Request) -> int:
        """Count the tokens of a request; asked only of an LLM that has a window."""
        return cast(Windowed, self._llm).count(request)

    def reply(self, request: Request) -> Reply:
        """Return the LLM's reply. Raises LLMError, as the LLM does, which is recorded too."""
        started = time.perf_counter()
        try:
            reply = self._llm.reply(request)
        except KcardError as error:
            self._record(request, error, time.perf_counter() - started)
            raise
        self._record(request, reply, time.perf_counter() - started)
        return reply

    def _record_all(self, llm: Batching, requests: Sequence[Request]) -> Iterator[Reply | LLMError]:
        """Return the replies of one batch, whose seconds are shared among its requests."""
        started = time.perf_counter()
        replies = list(llm.reply_all(requests))
        for request, reply in zip(requests, replies, strict=True):
            self._record(request, reply, (time.perf_counter() - started) / len(replies))
        yield from replies

    def collect(self, question: str, others: Sequence[str] = ()) -> tuple[Call, ...]:
        """Return the requests for this question, in order, and forget them.

        `others`: the questions that are still to be collected, whose requests stay.
        """
        with self._lock:
            theirs = {
                text
                for text in self._calls
                if text and text != question and any(other.startswith(text) for other in others)
            }
            taken = [text for text in self._calls if text not in theirs]
            return tuple(call for text in taken for call in self._calls.pop(text))

    def _record(self, request: Request, reply: Reply | KcardError, seconds: float) -> None:
        prompt = self._llm.prompt(request) if isinstance(self._llm, Prompting) else render(request)
        if isinstance(reply, Reply):
            call = Call(request.kind, prompt, reply.text, reply.tokens_in, reply.tokens_out, seconds)
        else:
            call = Call(request.kind, prompt, "", seconds=seconds, error=one_line(reply))
        with self._lock:
            self._calls[request.question].append(call)


GIVE_UP = 16  # so many failures in a row are the endpoint's, not the questions'
NOT_ASKED = f"not asked, because {GIVE_UP} questions before it failed in a row"

Key = tuple[str, str, str]
PlacedQuestion = tuple[Question, Item]


class Store(Protocol):
    """Where results are kept."""

    def append(self, run: Run, results: Sequence[EvalResult]) -> None:
        """Keep results, all or none; one of the same question and setting is replaced."""
        ...


@dataclass(frozen=True)
class Runner:
    """A run that is ready to be asked.

    tasks     the run's tasks by name
    question  a task's item as it is put, with choices and demonstrations
    answerer  the way of answering of a setting, made when its turn comes
    recorder  the LLM that all of them ask
    batch     how many questions are put at a time
    """

    run: Run
    tasks: Mapping[str, TaskData]
    question: Callable[[TaskData, Item], Question]
    answerer: Callable[[str], Answerer]
    recorder: Recorder
    store: Store
    batch: int = QUESTIONS

    def ask(self, missing: Sequence[Key], report: Callable[[int], None] | None = None) -> None:
        """Ask these questions; `report` is called with how many are done.

        A question that fails becomes a result with its error. After GIVE_UP failures in a row the rest of the run is
        not asked: each question becomes a result that says so, to be asked by resuming.
        """
        done, streak = 0, 0
        for task, setting, questions in self._groups(missing):
            given_up = streak >= GIVE_UP
            refused = (failed(task, setting, item, NOT_ASKED, ()) for _, item in questions)
            for result in refused if given_up else self._answer_each(task, setting, questions):
                self.store.append(self.run, [result])
                done, streak = done + 1, streak + 1 if result.error else 0
                if report:
                    report(done)

    def _groups(self, missing: Sequence[Key]) -> Iterator[tuple[str, str, list[PlacedQuestion]]]:
        """Return the missing questions of each task and setting, in the order of the run, so many at a time.

        No text occurs twice in a group, because the text tells whose a request to the LLM is.
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
        self, task: str, setting: str, questions: Sequence[PlacedQuestion], later: Sequence[str] = ()
    ) -> Iterator[EvalResult]:
        """Yield a result for each question. Where an answerer raises, the rest is asked one by one, so that one bad
        question does not cost the others.

        One with `outcomes`, such as Pipeline, yields an error in place of an answer instead. `later`: questions that
        are asked after these.
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
                if len(questions) > 1:
                    for at, other in enumerate(questions[nth:], nth + 1):
                        yield from self._answer_each(
                            task, setting, [other], [*(q.text for q, _ in questions[at:]), *later]
                        )
                    return
                outcome = error
            calls = self.recorder.collect(question.text, waiting)
            if isinstance(outcome, KcardError):
                yield failed(task, setting, item, one_line(outcome), calls)
            else:
                yield answered(task, setting, item, outcome, calls)
