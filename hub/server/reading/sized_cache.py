"""A cache of the values used last, limited by their total size."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

__all__ = ["SizedCache"]

Key = TypeVar("Key")
Value = TypeVar("Value")


class SizedCache(Generic[Key, Value]):
    """Values by key, of `most` in all, in the unit of `put`'s sizes. Thread-safe; values must not be changed."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._kept: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """The value, if it is kept."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value, unless it is larger than the cache; drops those that were not used for longest."""
        if size > self._most:
            return
        with self._lock:
            self._size += size - self._kept.pop(key, (value, 0))[1]
            self._kept[key] = (value, size)
            while self._size > self._most:
                self._size -= self._kept.popitem(last=False)[1][1]
