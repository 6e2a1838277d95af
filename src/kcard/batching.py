"""Batches of items, threads that process items in order, values kept in memory, and when to give up."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Generic, TypeVar, cast

# Batches: a number of items at a time, or texts of similar length, which need little padding.

QUESTIONS = 16  # minimum number of questions for which cards generate in one batch

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in their order, `size` at a time; the last batch may be smaller."""
    rest = iter(items)
    while True:
        batch = list(islice(rest, size))
        if not batch:
            return
        yield batch


def batched_by_size(items: Iterable[T], size_of: Callable[[T], int], size: int) -> Iterator[list[T]]:
    """Yield the items in their order, in batches of about `size` together, at least one each."""
    batch: list[T] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size_of(item)
        if total >= size:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def questions_together(requests: int | None) -> int:
    """Return the number of questions to answer in one batch, for an LLM that takes `requests` at a time (None: one).

    Four per request, so that few wait for the slowest. Where large cards take turns,
    kcard.integrators.pipeline.questions_per_batch gives more.
    """
    return max(QUESTIONS, 4 * (requests or 1))


def by_length(lengths: Sequence[int]) -> list[int]:
    """Return indices in order of length; equal ones stay in their order."""
    return sorted(range(len(lengths)), key=lengths.__getitem__)


def by_tokens(lengths: Sequence[int], tokens: int, width: int = 1) -> Iterator[list[int]]:
    """Yield indices in order of length, in groups of at most `tokens` tokens, with padding to multiples of `width`."""
    group: list[int] = []
    for index in by_length(lengths):
        if group and (len(group) + 1) * padded(lengths[index], width) > tokens:
            yield group
            group = []
        group.append(index)
    if group:
        yield group


def padded(length: int, width: int) -> int:
    """Return the next multiple of `width`."""
    return -(-length // width) * width


# Consecutive failures that are an endpoint's fault, not that of the requests, of the questions, or of the worker of a
# cluster that a batch of questions was given to.
MAX_FAILED_REQUESTS = 64
MAX_FAILED_QUESTIONS = 16
MAX_FAILED_BATCHES = 3


class FailureStreak:
    """Counts consecutive failures: an endpoint that is down would otherwise fail for hours, once for each question.

    is_over  whether `limit` failures in a row were recorded
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.length = limit, 0

    def record(self, failed: bool) -> bool:
        """Record an outcome; return whether the limit is reached now."""
        self.length = self.length + 1 if failed else 0
        return self.is_over

    @property
    def is_over(self) -> bool:
        return self.length >= self.limit


R = TypeVar("R")


class LRUCache(Generic[Key, R]):
    """The `most` most recently used values, for all threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Key, R] = OrderedDict()
        self._lock = Lock()

    def read(self, keys: Iterable[Key]) -> dict[Key, R]:
        """Return the values that are there."""
        with self._lock:
            values = {key: self._values[key] for key in keys if key in self._values}
            for key in values:
                self._values.move_to_end(key)
        return values

    def write(self, values: Mapping[Key, R]) -> None:
        with self._lock:
            self._values.update(values)
            while len(self._values) > self._most:
                self._values.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()


def in_order(function: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """Yield function(item) for each item, in order, each as soon as it and those before it are ready.

    At most `workers` calls run at a time. An exception is raised in its item's place; after it, after Ctrl-C, and when
    the iterator is closed, no further call starts. Threads are daemons, so that a call that hangs does not keep the
    program from exiting, as those of concurrent.futures would.
    """
    if workers <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    # Each thread takes the next item until there is none.
    numbers, lock, stopped = iter(range(len(items))), Lock(), Event()
    done: SimpleQueue[tuple[int, R | None, BaseException | None]] = SimpleQueue()

    def work() -> None:
        while not stopped.is_set():
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                done.put((number, function(items[number]), None))
            except BaseException as error:  # noqa: BLE001 - raised by whoever reads the results
                done.put((number, None, error))

    # Yield the results in the order of the items.
    for _ in range(min(workers, len(items))):
        Thread(target=work, daemon=True).start()
    outcomes: dict[int, tuple[R | None, BaseException | None]] = {}
    try:
        for number in range(len(items)):
            while number not in outcomes:
                at, result, error = done.get()
                outcomes[at] = result, error
            result, error = outcomes.pop(number)
            if error is not None:
                raise error
            yield cast("R", result)
    finally:
        stopped.set()
