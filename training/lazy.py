"""Sequences that make their items when asked, so that none need be in memory."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, overload

__all__ = ["Lazy"]

T = TypeVar("T")


class Lazy(Sequence[T], Generic[T]):
    """`length` items, item i being `make(i)`; a slice is a Lazy too."""

    def __init__(self, length: int, make: Callable[[int], T]) -> None:
        self._indexes = range(length)
        self._make = make

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> "Lazy[T]": ...
    def __getitem__(self, index: Any) -> "T | Lazy[T]":
        if not isinstance(index, slice):
            return self._make(self._indexes[index])
        chosen: Lazy[T] = Lazy(0, self._make)
        chosen._indexes = self._indexes[index]
        return chosen
