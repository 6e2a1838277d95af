"""An evaluation run: what is asked of whom, with all that it takes to ask it again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = ["Run", "RunPlan", "RunTask"]


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
        """Where the result of this question stands among all of the run, from 0. Raises KeyError."""
        return self._positions[task, setting, question]

    def keys(self) -> Iterator[tuple[str, str, str]]:
        """(task, setting, question id) of every result, in order."""
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
