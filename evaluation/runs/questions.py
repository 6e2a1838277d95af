"""Which questions of a task a run asks, and how they are put."""

import random
from collections.abc import Sequence

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
    demonstrations = task.demonstrations(item)
    if shots is not None:
        demonstrations = demonstrations[len(demonstrations) - min(shots, len(demonstrations)) :]
    return Question(item.question, item.choices, _examples(demonstrations))


def _examples(shots: Sequence[Item]) -> tuple[Example, ...]:
    return tuple(Example("answer", shot.question, shot.answers[0], choices=shot.choices) for shot in shots)
