"""Runs of `kcard eval`: plan, results and storage, and how questions are answered, scored and stored."""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

from kcard.batching import MAX_FAILED_QUESTIONS, QUESTIONS, FailureStreak, batched
from kcard.errors import HubError, KcardError, LLMError, one_line
from kcard.evaluation.metrics import accuracy, exact_match, f1, round_floats, substring
from kcard.evaluation.tasks.base import Item, TaskData
from kcard.events import Event, OnEvent, ignore
from kcard.interfaces import LLM, Answerer
from kcard.io import build, parse
from kcard.llms.prompts import render
from kcard.types import Answer, Call, Example, Question, Reply, add_counts, derive_seed

if TYPE_CHECKING:
    from kcard.hub.db.models import StoredRun
    from kcard.hub.pools import Runs

# Names of settings: WAY, WAY@GATE or BELOW/ABOVE@GATE, where a way is a mode or a baseline, and after it +OPTION=VALUE
# for options that differ from the run's, such as bottom-up@always+n1=1+cards=moons+cards=rivers

OVERRIDE = re.compile(r"\+(?=[a-z0-9-]+=)")


@dataclass(frozen=True)
class SettingName:
    """A setting's name, parsed.

    base     the name without options
    options  (name, value), once for each value
    """

    base: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str) -> "SettingName":
        base, *options = OVERRIDE.split(name)
        return cls(base, tuple((key, value) for key, _, value in (text.partition("=") for text in options)))

    @property
    def way(self) -> str:
        return self.base.partition("@")[0]

    @property
    def gate(self) -> str | None:
        """The gate that the name has; "" if only its mark @ is there, None without one."""
        _, mark, gate = self.base.partition("@")
        return gate if mark else None

    @property
    def sides(self) -> tuple[str, str] | None:
        """The ways below and above the gate; None if there is only one way."""
        below, slash, above = self.way.partition("/")
        return (below, above) if slash else None

    def __str__(self) -> str:
        return "".join([self.base, *(f"+{key}={value}" for key, value in self.options)])

    @property
    def changed(self) -> frozenset[str]:
        """Names of the options that differ from the run's."""
        return frozenset(key for key, _ in self.options)

    def values(self, option: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.options if key == option)


# The questions of a task that a run asks, and their demonstrations.


def sample_ids(task: TaskData, limit: int | None, seed: int) -> tuple[str, ...]:
    """Return the ids of `limit` questions drawn with the seed, or of all, in the order of the file.

    A larger limit adds questions to those of a smaller one.
    """
    ids = [item.id for item in task.items]
    if limit is None or limit >= len(ids):
        return tuple(ids)
    drawn = set(random.Random(derive_seed(seed, "sample", task.name)).sample(ids, len(ids))[:limit])
    return tuple(i for i in ids if i in drawn)


def make_question(task: TaskData, item: Item, shots: int | None) -> Question:
    """Return the item as a question with its demonstrations, at most the last `shots` of them (None: all)."""
    demonstrations: Sequence[Item] = task.demonstrations(item)
    if demonstrations and len({shot.choices for shot in demonstrations}) == 1 and demonstrations[0].choices:
        # Interleave the classes of a classification task. Data sets such as LUN list demonstrations class by class, so
        # the last ones, which are kept if not all fit into the LLM's window, would be of one class.
        classes: dict[tuple[str, ...], list[Item]] = {}
        for shot in demonstrations:
            classes.setdefault(shot.answers, []).append(shot)
        backwards = zip_longest(*(reversed(members) for members in classes.values()))
        demonstrations = [shot for turn in reversed(list(backwards)) for shot in turn if shot is not None]
    if shots is not None:
        demonstrations = demonstrations[len(demonstrations) - min(shots, len(demonstrations)) :]
    examples = (
        Example("answer", shot.question, shot.answers[0], choices=shot.choices) for shot in demonstrations
    )
    return Question(item.question, item.choices, tuple(examples), item.group or None, item.popularity)


# The stored result of a question under a setting.

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
ASKED = 200  # characters at the end of a prompt that hold the wording of a need


def drop_texts(result: EvalResult) -> EvalResult:
    """Return the result without the prompts of its calls, but for the end of a need's, and the texts of its passages.

    Each passage says instead, under "holds", whether it contains an accepted answer.
    """
    trace = dict(result.trace)
    if isinstance(passages := trace.get("passages"), list):
        trace["passages"] = [
            {key: value for key, value in p.items() if key not in TEXTS} | {"holds": holds_answer(p, result)}
            if isinstance(p, dict)
            else p
            for p in passages
        ]
    calls = (
        replace(call, prompt=call.prompt[-ASKED:] if call.kind == "need" else "") for call in result.calls
    )
    return replace(result, calls=tuple(calls), trace=trace)


def holds_answer(passage: Mapping[str, Any], result: EvalResult) -> bool:
    """Return whether a passage of the result's trace, with or without its text, contains an accepted answer."""
    if "holds" in passage:
        return bool(passage["holds"])
    return substring(str(passage.get("text")), [result.choices.get(a, a) for a in result.answers])


# Prices of tokens.

MILLION = 1_000_000


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens, in any currency; None if unknown."""

    tokens_in: float | None = None
    tokens_out: float | None = None

    def cost(self, results: Iterable[EvalResult]) -> float | None:
        """Return the cost of the results; None without prices, or if the tokens of a result are unknown."""
        if self.tokens_in is None and self.tokens_out is None:
            return None
        total = 0.0
        for result in results:
            if result.tokens_in is None or result.tokens_out is None:
                return None
            total += result.tokens_in * (self.tokens_in or 0) + result.tokens_out * (self.tokens_out or 0)
        return total / MILLION


@dataclass(frozen=True)
class RunTask:
    """A task of a run.

    name    the task and its variant, such as "midterm-binary", as in EvalResult.task
    path    the file or folder; `sha256`: of its bytes
    metric  the metric that the task's papers report
    ids     the questions that the run asks, in order
    total   number of questions of the task
    """

    name: str
    path: str
    sha256: str
    metric: str
    ids: tuple[str, ...]
    total: int


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run: every question of every task under each setting.

    command   the command line after `kcard`, or the equivalent of a call of kcard.evaluate
    options   the options of kcard.evaluate that differ from their defaults
    cards     the sha256 of each card's version, by reference
    llm       the LLM, as backend or backend:model
    versions  of kcard, Python and the libraries that affect results
    """

    command: tuple[str, ...]
    tasks: tuple[RunTask, ...]
    settings: tuple[str, ...]
    llm: str
    seed: int = 0
    cards: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def planned(self) -> int:
        """Number of results of the complete run."""
        return len(self.settings) * sum(len(task.ids) for task in self.tasks)

    def position(self, task: str, setting: str, question: str) -> int:
        """Return the position of a question's result in the run, from 0. Raises KeyError for another question."""
        return self._positions[task, setting, question]

    def keys(self) -> Iterator[tuple[str, str, str]]:
        """Yield (task, setting, question id) of every result, in order."""
        for task in self.tasks:
            for setting in self.settings:
                for question in task.ids:
                    yield task.name, setting, question

    @cached_property
    def _positions(self) -> Mapping[tuple[str, str, str], int]:
        return {key: position for position, key in enumerate(self.keys())}


@dataclass(frozen=True)
class Run:
    """A stored run; `started` is ISO 8601 in UTC, `answered` and `failed` count the stored results."""

    number: int
    started: str
    plan: RunPlan
    answered: int
    failed: int

    @property
    def complete(self) -> bool:
        """Whether every question has an answer."""
        return self.answered == self.plan.planned


# Runs in the hub's database, which stores plans and results as JSON.


class RunStorage:
    """The runs of a hub: RunStorage(Hub().runs)."""

    def __init__(self, runs: "Runs") -> None:
        self._runs = runs

    def create(self, plan: RunPlan) -> Run:
        """Store a new run without results."""
        return _run(self._runs.create(json.dumps(asdict(plan), ensure_ascii=False), plan.planned))

    def append(self, run: Run, results: Iterable[EvalResult]) -> None:
        """Store results in one transaction; each replaces an earlier result of the same question and setting."""
        from kcard.hub.db.models import StoredResult

        self._runs.append(
            run.number,
            {
                run.plan.position(result.task, result.setting, result.id): StoredResult(
                    record=json.dumps(asdict(result), ensure_ascii=False), failed=bool(result.error)
                )
                for result in results
            },
        )

    def list(self) -> "list[Run]":
        """Return every run, oldest first."""
        return [_run(stored) for stored in self._runs.list()]

    def get(self, number: int) -> Run:
        """Return a run. Raises HubError for an unknown one."""
        return _run(self._runs.get(number))

    def results(self, number: int) -> Iterator[EvalResult]:
        """Yield the stored results of a run, by task, setting and question, in the order of the plan."""
        for position, stored in self._runs.results(number):
            try:
                yield build(EvalResult, parse(stored.record))
            except (ValueError, TypeError) as error:
                raise HubError(f"run {number}, result {position} can't be read: {error}") from error

    def delete(self, number: int) -> None:
        """Delete a run with its results. Raises HubError for an unknown run."""
        self._runs.delete(number)


def _run(stored: "StoredRun") -> Run:
    try:
        plan = build(RunPlan, parse(stored.plan))
    except (ValueError, TypeError) as error:
        raise HubError(f"run {stored.number} can't be read: {error}") from error
    started = stored.started.isoformat(timespec="seconds")
    return Run(stored.number, started, plan, stored.answered, stored.failed)


# Results of questions, with their scores.


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


SKIPPED = f"skipped after {MAX_FAILED_QUESTIONS} consecutive failures"

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

        A question that fails becomes a result with its error. After MAX_FAILED_QUESTIONS consecutive failures, the
        remaining questions are skipped: they become failed results too, which resuming the run asks again.
        """
        done, streak = 0, FailureStreak(MAX_FAILED_QUESTIONS)
        for task, setting, questions in self._batches(missing):
            results: Iterator[EvalResult]
            if streak.is_over:
                results = (make_result(task, setting, item, SKIPPED, ()) for _, item in questions)
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
            result = one_line(outcome) if isinstance(outcome, KcardError) else outcome
            yield make_result(task, setting, item, result, calls)

    def _call(self, call: Call) -> RecordedCall:
        prompt = self.llm.prompt(call.request) or render(call.request)
        reply = call.reply or Reply("")
        return RecordedCall(
            call.request.kind, prompt, reply.text, reply.tokens_in, reply.tokens_out, call.seconds, call.error
        )
