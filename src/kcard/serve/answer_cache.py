"""Answers that were given before, for questions that come again; equal questions at a time are answered once."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kcard.answer import Answer

__all__ = ["AnswerCache", "Answered"]

T = TypeVar("T")
Version = Callable[[], Awaitable[Hashable]]


@dataclass(frozen=True)
class Answered:
    """`cached`: whether it was given before, or with an equal question that was being answered."""

    answer: Answer
    cached: bool = False


@dataclass(eq=False)
class _Flight(Generic[T]):
    """An answer that is being found, and how many wait for it."""

    task: "asyncio.Task[T]"
    waiting: int = 0


class AnswerCache:
    """The answers that were used last, at most `most`; those of one version of the cards. For one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._version: Hashable = None
        self._kept: OrderedDict[Hashable, Answer] = OrderedDict()
        self._flights: dict[Hashable, _Flight[Answer]] = {}

    async def get(self, version: Version, key: Hashable, find: Callable[[], Awaitable[Answer]]) -> Answered:
        """The answer for a key; found at most once at a time, until nobody waits for it any more.

        `version`: what else the answers depend on. When it changes, all are dropped; an answer during which it changed
        is not kept. Raises what `find` raises, which is not kept either.
        """
        self._follow(await version())
        if key in self._kept:
            self._kept.move_to_end(key)
            return Answered(self._kept[key], cached=True)
        flight = self._flights.get(key)
        shared = flight is not None
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(self._found(version, key, find)))
        flight.waiting += 1
        try:
            return Answered(await asyncio.shield(flight.task), shared)
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                flight.task.cancel()
            if (not flight.waiting or flight.task.done()) and self._flights.get(key) is flight:
                del self._flights[key]

    async def _found(self, version: Version, key: Hashable, find: Callable[[], Awaitable[Answer]]) -> Answer:
        before = self._version
        found = await find()
        self._follow(await version())
        if before == self._version:
            self._kept[key] = found
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return found

    def _follow(self, version: Hashable) -> None:
        if version != self._version:
            self._version = version
            self._kept.clear()
            self._flights = {}  # those who wait have their own hold on them
