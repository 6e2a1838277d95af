"""Runs of `kcard eval`: the names of their settings, their plans, and their storage in the hub's database."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError
from kcard.evaluation.runs.results import EvalResult
from kcard.io import build, parse

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
        pairs = []
        for option in options:
            key, _, value = option.partition("=")
            pairs.append((key, value))
        return cls(base, tuple(pairs))

    @property
    def way(self) -> str:
        return self.base.partition("@")[0]

    @property
    def gate(self) -> str | None:
        """The gate that the name has; "" if only its mark @ is there, None without one."""
        _, mark, gate = self.base.partition("@")
        if not mark:
            return None
        return gate

    @property
    def sides(self) -> tuple[str, str] | None:
        """The ways below and above the gate; None if there is only one way."""
        below, slash, above = self.way.partition("/")
        if not slash:
            return None
        return below, above

    def __str__(self) -> str:
        options = [f"+{key}={value}" for key, value in self.options]
        return self.base + "".join(options)

    @property
    def changed(self) -> frozenset[str]:
        """Names of the options that differ from the run's."""
        return frozenset(key for key, _ in self.options)

    def values(self, option: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.options if key == option)


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

        rows = {}
        for result in results:
            position = run.plan.position(result.task, result.setting, result.id)
            record = json.dumps(asdict(result), ensure_ascii=False)
            rows[position] = StoredResult(record=record, failed=bool(result.error))
        self._runs.append(run.number, rows)

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
