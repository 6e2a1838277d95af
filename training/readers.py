"""Work of reading a corpus, divided among processes; the results come in the order of the work."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from kcard.errors import CorpusError

__all__ = ["divided"]

AHEAD = 8  # pieces of work a process that are handed out at a time

T = TypeVar("T")
R = TypeVar("R")


def divided(function: Callable[[T], R], work: Iterable[T], readers: int) -> Iterator[R]:
    """`function` of every piece of work, in order. With one reader, or one piece, this process does it.

    The pieces and what becomes of them have to be pickled. Raises CorpusError where a process is killed.
    """
    if readers == 1:
        yield from map(function, work)
        return
    rest = iter(work)
    while pieces := [*islice(rest, AHEAD * readers)]:
        if len(pieces) == 1:
            yield from map(function, pieces)
        else:
            yield from _parallel(function, pieces, readers)


def _parallel(function: Callable[[T], R], pieces: list[T], readers: int) -> list[R]:
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import BrokenProcessPool

    try:
        found: list[R] = Parallel(n_jobs=readers)(delayed(function)(piece) for piece in pieces)
    except BrokenProcessPool as error:
        raise CorpusError(
            f"one of {readers} reading processes was killed: if memory is short, use readers 1 (--readers 1)"
        ) from error
    return found
