"""Calls that wait for something else, such as an endpoint, several at a time, with their results in order."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import NoReturn, TypeVar

__all__ = ["in_order"]

T = TypeVar("T")
R = TypeVar("R")


def in_order(function: Callable[[T], R], items: Sequence[T], workers: int) -> Iterator[R]:
    """function(item) of each item, in the order of the items, each as soon as it and those before it are there.

    At most `workers` calls run at a time. An exception is raised in its item's place; after it, after Ctrl-C, and when
    the iterator is closed, no further call begins. Threads are daemons, so that a call that hangs can't keep the
    program from ending, as those of concurrent.futures would.
    """
    if workers <= 1 or len(items) <= 1:
        yield from map(function, items)
        return
    numbers, lock, stopped = iter(range(len(items))), Lock(), Event()
    done: SimpleQueue[tuple[int, Callable[[], R]]] = SimpleQueue()

    def work() -> None:
        while not stopped.is_set():
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            done.put((number, _outcome(function, items[number])))

    for _ in range(min(workers, len(items))):
        Thread(target=work, daemon=True).start()
    found: dict[int, Callable[[], R]] = {}
    try:
        for number in range(len(items)):
            while number not in found:
                at, outcome = done.get()
                found[at] = outcome
            yield found.pop(number)()
    finally:
        stopped.set()


def _outcome(function: Callable[[T], R], item: T) -> Callable[[], R]:
    """What gives the call's result, or raises its exception, again."""
    try:
        result = function(item)
    except BaseException as error:  # noqa: BLE001 - raised by whoever reads the results
        return partial(_raise, error)
    return lambda: result


def _raise(error: BaseException) -> NoReturn:
    raise error
