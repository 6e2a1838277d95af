"""Which passages of a corpus state the same fact in other words."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from kcard.training.spans import bare, entities, frame

__all__ = ["wordings"]

ALIKE = 8  # passages of a frame from which on it is told what they share


def wordings(passages: Sequence[str]) -> list[list[int]]:
    """For each passage the numbers of those that state its fact, itself among them.

    They have the same names and figures, but for those that most passages of a frame share ("the U.S. House").
    """
    named = [_named(passage) for passage in passages]
    frames = [frame(passage) for passage in passages]
    size = Counter(frames)
    count = Counter((form, word) for form, names in zip(frames, named, strict=True) for word in names)
    groups: dict[object, list[int]] = defaultdict(list)
    keys: list[object] = []
    for number, (form, names) in enumerate(zip(frames, named, strict=True)):
        usual = {word for word in names if size[form] >= ALIKE and 2 * count[form, word] > size[form]}
        keys.append(frozenset(names - usual) or number)
        groups[keys[-1]].append(number)
    return [groups[key] for key in keys]


def _named(passage: str) -> set[str]:
    """The words of its names and figures, in lower case, without a genitive's ending."""
    words = (word for start, end in entities(passage) for word in passage[start:end].lower().split())
    return {bare(word).removesuffix("'s").removesuffix("’s") for word in words} - {""}
