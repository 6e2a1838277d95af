"""Independent forward passes of the embedded models, on as many threads as torch may use.

Each thread runs one pass alone. Torch would split every matrix product among its threads instead, which must then wait
for each other after each of them, long where another process has a core.
"""

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_parallel", "share"]

T = TypeVar("T")
R = TypeVar("R")
LEAST = 128  # tokens, of which fewer are no faster than so many


def share(tokens: int, most: int) -> int:
    """Tokens of one pass so that every thread has one: at most `most`, at least LEAST."""
    import torch

    return max(min(most, LEAST), min(most, -(-tokens // torch.get_num_threads())))


def in_parallel(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """function(item) of each item, in order. The function must enter torch's modes, such as inference, itself."""
    import torch

    threads = torch.get_num_threads()
    if threads == 1 or len(items) < 2:
        return [function(item) for item in items]
    return list(_pool(threads).map(function, items))


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads in each of which torch uses that thread alone."""
    import torch

    started = threading.Barrier(threads + 1)

    def start() -> None:
        torch.get_num_threads()  # a thread's first use of torch would undo what is set before it
        torch.set_num_threads(1)
        started.wait()

    pool = ThreadPoolExecutor(threads, thread_name_prefix="kcard-pass", initializer=start)
    for _ in range(threads):
        pool.submit(int)
    started.wait()
    torch.set_num_threads(threads)  # what they set is the default of threads that begin later
    return pool


os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of these threads
