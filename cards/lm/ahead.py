"""What is read in a thread of its own while something else writes: one thing at a time."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kcard.cards.lm.memory import Memory

__all__ = ["Ahead"]


@dataclass
class Ahead:
    """Reads into memory that it has reserved. Its methods are called by one thread at a time."""

    memory: Memory
    _thread: ThreadPoolExecutor | None = field(default=None, init=False)
    _reading: tuple[Hashable, int, "Future[Any]"] | None = field(default=None, init=False)

    def start(self, key: Hashable, size: int, read: Callable[[], Any]) -> bool:
        """Begin to read `size` bytes; False where there is no room beside what is expected."""
        self.settle()
        if not self.memory.reserve(size):
            return False
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="kcard-weights")
        self._reading = key, size, self._thread.submit(read)
        return True

    def take(self, key: Hashable) -> Any:
        """What was read, once it is there; its memory is no longer reserved. None where something else or nothing is
        being read. Raises what reading raised."""
        if self._reading is None or self._reading[0] != key:
            self.settle()
            return None
        _, size, future = self._reading
        try:
            return future.result()
        finally:
            if future.done():  # not where the user interrupts: then it goes on, and `settle` ends it
                self._reading = None
                self.memory.release(size)

    def settle(self) -> None:
        """End what was begun and never taken: it is kept in memory. If it failed, it will again when it is needed."""
        if self._reading is None:
            return
        key, size, _ = self._reading
        with suppress(Exception):
            self.memory.put(key, self.take(key), size)
