"""Batches: items so many at a time, and texts of like length together, so that little is padded."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

__all__ = ["QUESTIONS", "alike", "batched", "by_length", "by_tokens", "padded", "questions_together"]

QUESTIONS = 16  # that cards write for together, at least

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in their order, `size` at a time; the last batch may be smaller."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def questions_together(requests: int | None) -> int:
    """How many questions cards write for together, where an LLM takes `requests` at a time (None: one): four for each,
    so that few requests wait for the slowest. Where cards take turns, kcard.integrators.batch.asked_together gives
    more."""
    return max(QUESTIONS, 4 * (requests or 1))


def alike(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Where each key stands, in the order in which they first come."""
    found: dict[Key, list[int]] = {}
    for index, key in enumerate(keys):
        found.setdefault(key, []).append(index)
    return found


def by_length(lengths: Sequence[int]) -> list[int]:
    """Indices in order of length; equal ones stay in their order."""
    return sorted(range(len(lengths)), key=lengths.__getitem__)


def by_tokens(lengths: Sequence[int], tokens: int, width: int = 1) -> Iterator[list[int]]:
    """Indices in order of length, in groups of at most `tokens` tokens, padding to multiples of `width` included."""
    group: list[int] = []
    for index in by_length(lengths):
        if group and (len(group) + 1) * padded(lengths[index], width) > tokens:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def padded(length: int, width: int) -> int:
    """The next multiple of `width`."""
    return -(-length // width) * width
