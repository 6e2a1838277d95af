"""What a task is: a set of questions with accepted answers that LLMs are compared on."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kcard.request import Choice

__all__ = ["Item", "Task", "TaskData"]


@dataclass(frozen=True)
class Item:
    """One question of a task.

    id          unique within the task, and the same whenever the file is read again
    answers     the accepted answers; for a multiple-choice question the letter of the right option, followed by the
                letters of options that read the same
    choices     the options (letter, text); empty for an open question
    group       the part of the task that it belongs to, such as a subject (MMLU) or relation (PopQA); "" where there
                are no parts
    popularity  how well known its subject is (PopQA's s_pop), at least 0; None where it is not known
    passages    texts that the data set gives with the question (SQuAD, HotpotQA)
    label       the class of the right answer, in a classification task (LUN); "" elsewhere
    """

    id: str
    question: str
    answers: tuple[str, ...]
    choices: tuple[Choice, ...] = ()
    group: str = ""
    popularity: float | None = None
    passages: tuple[str, ...] = ()
    label: str = ""


@dataclass(frozen=True)
class TaskData:
    """The questions of a task's file or folder.

    name    the task and its variant, such as "midterm-binary"
    metric  the one that the task's papers report: em, f1, substring, accuracy or balanced-accuracy
    sha256  of the bytes that were read
    shots   demonstrations by group; those under "" serve every group that has none of its own
    """

    name: str
    metric: str
    items: tuple[Item, ...]
    sha256: str
    shots: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)

    def demonstrations(self, item: Item) -> tuple[Item, ...]:
        """The demonstrations for this question, itself left out."""
        found = self.shots.get(item.group) or self.shots.get("", ())
        return tuple(shot for shot in found if shot.question != item.question)


class Task(Protocol):
    """A data set in its own layout: a module, or any object, with this function.

    Registered under `kcard.tasks` by the name that the command line takes.
    """

    def read(self, path: Path) -> TaskData:
        """The questions of that file or folder.

        Raises UsageError, naming file, line (or entry) and remedy, for what is missing or malformed, a duplicate id,
        and a task without a question.
        """
        ...
