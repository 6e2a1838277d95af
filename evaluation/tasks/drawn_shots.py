"""Demonstrations for data sets that bring none, drawn from their questions as Adaptive Retrieval does (appendix B)."""

from collections.abc import Mapping, Sequence
from random import Random

from kcard.evaluation.tasks.task import Item
from kcard.sampling import derive_seed

__all__ = ["at_random", "one_of_each_other"]

COUNT = 15
SEED = 0


def one_of_each_other(items: Sequence[Item]) -> Mapping[str, tuple[Item, ...]]:
    """For each group one question of every other group, at most fifteen; none where there are no groups.

    The questions of a group share them, where the paper draws for each question.
    """
    by_group: dict[str, list[Item]] = {}
    for item in items:
        if item.group:
            by_group.setdefault(item.group, []).append(item)
    found = {}
    for group in by_group:
        random = Random(derive_seed(SEED, "shots", group))
        others = [random.choice(by_group[other]) for other in sorted(by_group) if other != group]
        random.shuffle(others)
        found[group] = tuple(others[:COUNT])
    return {group: shots for group, shots in found.items() if shots}


def at_random(items: Sequence[Item]) -> Mapping[str, tuple[Item, ...]]:
    """Fifteen questions, for every group; a question is not among its own demonstrations (TaskData.demonstrations)."""
    return {"": tuple(Random(derive_seed(SEED, "shots")).sample(items, min(COUNT, len(items))))}
