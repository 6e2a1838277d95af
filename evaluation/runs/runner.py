"""How the questions of a run are drawn, worded, answered and stored."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from kcard.batching import MAX_FAILED_QUESTIONS, QUESTIONS, FailureStreak, batched
from kcard.errors import KcardError, LLMError, one_line
from kcard.evaluation.runs.results import EvalResult, RecordedCall, make_result
from kcard.evaluation.runs.run import RunPlan
from kcard.evaluation.tasks.base import Item, TaskData
from kcard.events import Event, OnEvent, ignore
from kcard.interfaces import LLM, Answerer
from kcard.llms.prompts import render
from kcard.trace import Call
from kcard.types import Example, Question, Reply, derive_seed

SKIPPED_ERROR = f"skipped after {MAX_FAILED_QUESTIONS} consecutive failures"

Key = tuple[str, str, str]  # task, setting and id of a question
ItemQuestion = tuple[Question, Item]


def sample_ids(task: TaskData, limit: int | None, seed: int) -> tuple[str, ...]:
    """Return the ids of `limit` questions drawn with the seed, or of all, in the order of the file.

    A larger limit adds questions to those of a smaller one.
    """
    ids = [item.id for item in task.items]
    if limit is None or limit >= len(ids):
        return tuple(ids)
    drawn = set(random.Random(derive_seed(seed, "sample", task.name)).sample(ids, len(ids))[:limit])
    chosen = [id_ for id_ in ids if id_ in drawn]
    return tuple(chosen)


def make_question(task: TaskData, item: Item, shots: int | None) -> Question:
    """Return the item as a question with its demonstrations, at most the last `shots` of them (None: all)."""
    demonstrations: Sequence[Item] = task.demonstrations(item)
    if demonstrations and len({shot.choices for shot in demonstrations}) == 1 and demonstrations[0].choices:
        # Interleave the classes of a classification task. Data sets such as LUN list demonstrations class by class, so
        # the last ones, which are kept if not all fit into the LLM's window, would be of one class.
        classes: dict[tuple[str, ...], list[Item]] = {}
        for shot in demonstrations:
            classes.setdefault(shot.answers, []).append(shot)
        interleaved: list[Item] = []
        for turn in reversed([*zip_longest(*map(reversed, classes.values()))]):
            interleaved += filter(None, turn)
        demonstrations = interleaved
    if shots is not None:
        demonstrations = demonstrations[len(demonstrations) - min(shots, len(demonstrations)) :]
    examples = []
    for shot in demonstrations:
        examples.append(Example("answer", shot.question, shot.answers[0], choices=shot.choices))
    return Question(item.question, item.choices, tuple(examples), item.group or None, item.popularity)


@dataclass
class Runner:
    """Answers the questions of a run.

    tasks     the run's tasks by name
    answerer  makes the answerer of a setting, when its first question is due; only one is kept at a time
    llm       of all answerers
    store     is called with each result as it comes
    shots     maximum number of demonstrations for a question; None: all of the task
    batch     number of questions to answer at a time
    """

    plan: RunPlan
    tasks: Mapping[str, TaskData]
    answerer: Callable[[str], Answerer]
    llm: LLM
    store: Callable[[EvalResult], None]
    shots: int | None = None
    batch: int = QUESTIONS
    _opened: tuple[str, Answerer] | None = field(default=None, init=False, repr=False)

    def ask(self, missing: Sequence[Key], on_event: OnEvent = ignore) -> None:
        """Answer these questions and store the results; `on_event` is called with the number of those done.

        A question that fails becomes a result with its error. After MAX_FAILED_QUESTIONS consecutive failures, the
        remaining questions are skipped: they become failed results too, which resuming the run asks again.
        """
        done, streak = 0, FailureStreak(MAX_FAILED_QUESTIONS)
        for task, setting, questions in self._batches(missing):
            results: Iterable[EvalResult] = self._answer_each(task, setting, questions)
            if streak.is_over:
                results = [make_result(task, setting, item, SKIPPED_ERROR, ()) for _, item in questions]
            for result in results:
                self.store(result)
                done += 1
                streak.record(bool(result.error))
                on_event(Event("asking", done=done, total=len(missing)))

    def _batches(self, missing: Sequence[Key]) -> Iterator[tuple[str, str, list[ItemQuestion]]]:
        """Yield the missing questions of each task and setting in batches, in the order of the run."""
        remaining = set(missing)
        for task in self.plan.tasks:
            data = self.tasks[task.name]
            by_id = {item.id: item for item in data.items}
            for setting in self.plan.settings:
                items = [by_id[id_] for id_ in task.ids if (task.name, setting, id_) in remaining]
                for chunk in batched(items, self.batch):
                    questions = [(make_question(data, item, self.shots), item) for item in chunk]
                    yield task.name, setting, questions

    def _answer_each(
        self, task: str, setting: str, questions: Sequence[ItemQuestion]
    ) -> Iterator[EvalResult]:
        """Yield a result for each question."""
        if self._opened is None or self._opened[0] != setting:
            self._opened = None  # frees the models of the last setting
            self._opened = setting, self.answerer(setting)
        outcomes = self._opened[1].outcomes([question for question, _ in questions])
        for nth, (question, item) in enumerate(questions):
            outcome = next(outcomes, None)
            if outcome is None:
                raise LLMError(f"setting {setting} answered {nth} of {len(questions)} questions")
            calls = [self._call(call) for call in question.trace.calls]
            if isinstance(outcome, KcardError):
                yield make_result(task, setting, item, one_line(outcome), calls)
            else:
                yield make_result(task, setting, item, outcome, calls)

    def _call(self, call: Call) -> RecordedCall:
        prompt = self.llm.prompt(call.request) or render(call.request)
        reply = call.reply or Reply("")
        return RecordedCall(
            call.request.kind, prompt, reply.text, reply.tokens_in, reply.tokens_out, call.seconds, call.error
        )
