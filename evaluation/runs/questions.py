"""Which questions of a task a run asks, and how they are put."""

import random
from collections.abc import Sequence
from itertools import zip_longest

from kcard.evaluation.tasks.task import Item, TaskData
from kcard.question import Question
from kcard.request import Example
from kcard.sampling import derive_seed

__all__ = ["put", "sampled"]


def sampled(task: TaskData, limit: int | None, seed: int) -> tuple[str, ...]:
    """The ids of `limit` questions drawn with the seed, or of all, in the order of the file.

    A larger limit adds questions to those of a smaller one.
    """
    ids = [item.id for item in task.items]
    if limit is None or limit >= len(ids):
        return tuple(ids)
    drawn = set(random.Random(derive_seed(seed, "sample", task.name)).sample(ids, len(ids))[:limit])
    return tuple(i for i in ids if i in drawn)


def put(task: TaskData, item: Item, shots: int | None) -> Question:
    """The item as it is put to an LLM, with the task's demonstrations; with the last `shots` of them at most."""
    demonstrations = _in_turns(task.demonstrations(item))
    if shots is not None:
        demonstrations = demonstrations[len(demonstrations) - min(shots, len(demonstrations)) :]
    return Question(item.question, item.choices, _examples(demonstrations))


def _in_turns(shots: Sequence[Item]) -> Sequence[Item]:
    """Demonstrations of a classification, whose options are always the same, by class in turns.

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


def _examples(shots: Sequence[Item]) -> tuple[Example, ...]:
    return tuple(Example("answer", shot.question, shot.answers[0], choices=shot.choices) for shot in shots)
