"""A run of an evaluation: its plan, its results and how they are stored."""

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError
from kcard.evaluation.tasks.base import Item, TaskData
from kcard.io import build, parse
from kcard.types import Example, Question, derive_seed

if TYPE_CHECKING:
    from kcard.hub.pools import Runs, StoredRun

__all__ = [
    "Call",
    "EvalResult",
    "Prices",
    "Run",
    "RunPlan",
    "RunStorage",
    "RunTask",
    "SettingName",
    "put",
    "sampled",
]


# The name of a setting: a way of answering, perhaps with its gate, and options that differ from the run's.
#
# bottom-up@always+n1=1+cards=moons+cards=rivers

OVERRIDE = re.compile(r"\+(?=[a-z0-9-]+=)")


@dataclass(frozen=True)
class SettingName:
    """`base`: the name without options; `options`: those that differ, an option with several values several times."""

    base: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, name: str) -> "SettingName":
        base, *options = OVERRIDE.split(name)
        return cls(base, tuple((key, value) for key, _, value in (text.partition("=") for text in options)))

    def __str__(self) -> str:
        return "".join([self.base, *(f"+{key}={value}" for key, value in self.options)])

    @property
    def changed(self) -> frozenset[str]:
        """The options that differ."""
        return frozenset(key for key, _ in self.options)

    def values(self, option: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.options if key == option)


# Which questions of a task a run asks, and how they are put.


def sampled(task: TaskData, limit: int | None, seed: int) -> tuple[str, ...]:
    """Return the ids of `limit` questions drawn with the seed, or of all, in the order of the file.

    A larger limit adds questions to those of a smaller one.
    """
    ids = [item.id for item in task.items]
    if limit is None or limit >= len(ids):
        return tuple(ids)
    drawn = set(random.Random(derive_seed(seed, "sample", task.name)).sample(ids, len(ids))[:limit])
    return tuple(i for i in ids if i in drawn)


def put(task: TaskData, item: Item, shots: int | None) -> Question:
    """Return the item as it is put to an LLM, with the task's demonstrations, at most the last `shots` of them."""
    demonstrations = _interleave_classes(task.demonstrations(item))
    if shots is not None:
        demonstrations = demonstrations[len(demonstrations) - min(shots, len(demonstrations)) :]
    examples = (
        Example("answer", shot.question, shot.answers[0], choices=shot.choices) for shot in demonstrations
    )
    return Question(item.question, item.choices, tuple(examples))


def _interleave_classes(shots: Sequence[Item]) -> Sequence[Item]:
    """Interleave the demonstrations of a classification, whose options are always the same, by class.

    Data sets list them class by class (LUN). The last ones, which are left where the others do not fit into the LLM's
    window, would be of one class.
    """
    if len({shot.choices for shot in shots}) != 1 or not shots[0].choices:
        return shots
    classes: dict[tuple[str, ...], list[Item]] = {}
    for shot in shots:
        classes.setdefault(shot.answers, []).append(shot)
    backwards = zip_longest(*(reversed(members) for members in classes.values()))
    return [shot for turn in reversed(list(backwards)) for shot in turn if shot is not None]


# What an evaluation keeps of one question under one setting.


@dataclass(frozen=True)
class Call:
    """One request to the LLM: the prompt as it was sent, the reply, tokens (None where the backend does not tell) and
    seconds. `error`: why there is no reply; "" where there is one."""

    kind: str
    prompt: str
    reply: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class EvalResult:
    """One question of a task under one setting, such as "top-down:auto".

    answers     the accepted ones
    prediction  what was answered; "" where it failed
    scores      by metric, in [0, 1]: em, f1, substring, and accuracy for multiple choice
    popularity  of the question's subject (Item.popularity)
    trace       the whole answer, as `kcard ask --json` prints it; {} where it failed
    error       why there is no answer; "" where there is one
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
    calls: tuple[Call, ...] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    seconds: float = 0.0
    trace: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


# What tokens cost.

MILLION = 1_000_000


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens, in any currency; None where they are not known."""

    tokens_in: float | None = None
    tokens_out: float | None = None

    def cost(self, results: Iterable[EvalResult]) -> float | None:
        """Return the cost of the results; None where a price or the tokens of a result are not known."""
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

    name    the task and its variant, such as "midterm-binary"; as in Result.task
    path    the file or folder that was read, and `sha256` of its bytes
    metric  the one that the task's papers report
    ids     the questions that are asked, in order
    total   how many questions the task has
    """

    name: str
    path: str
    sha256: str
    metric: str
    ids: tuple[str, ...]
    total: int


@dataclass(frozen=True)
class RunPlan:
    """What a run asks: every question of every task under each setting.

    command   what was typed after `kcard`, or would have been
    options   the options of kcard.evaluate that are not their defaults
    cards     the versions that were used: sha256 by reference
    llm       the LLM as backend or backend:model
    versions  of kcard, Python and the libraries that compute
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
        """How many results the run has when it is complete."""
        return len(self.settings) * sum(len(task.ids) for task in self.tasks)

    def position(self, task: str, setting: str, question: str) -> int:
        """Return the position of this question's result among all of the run, from 0. Raises KeyError."""
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
        """Whether every question was asked, and none failed."""
        return self.answered == self.plan.planned


# Runs in the hub's database. The hub keeps texts; here they become values, and values texts.


class RunStorage:
    """The runs of a hub: RunStorage(Hub().runs)."""

    def __init__(self, runs: "Runs") -> None:
        self._runs = runs

    def create(self, plan: RunPlan) -> Run:
        """Store a new run, without results."""
        return _run(self._runs.create(json.dumps(asdict(plan), ensure_ascii=False), plan.planned))

    def append(self, run: Run, results: Iterable[EvalResult]) -> None:
        """Store results, all or none; an earlier result of the same question and setting is replaced."""
        from kcard.hub.pools import StoredResult

        self._runs.append(
            run.number,
            {
                run.plan.position(result.task, result.setting, result.id): StoredResult(
                    json.dumps(asdict(result), ensure_ascii=False), bool(result.error)
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
        """Return the stored results of a run: task by task, of each setting by setting, in the order of the
        questions."""
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
