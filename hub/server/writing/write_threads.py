"""Threads of writes. Writers wait for each other, and must not occupy the threads that serve reads meanwhile.

Short writes take turns. Uploads, which may take minutes to store, have other threads.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from starlette.requests import Request

from kcard.errors import Unavailable

__all__ = ["store_in_thread", "take_turn"]

T = TypeVar("T")
# In each worker. One write at a time has the database; the others check what they will write.
WRITES, UPLOADS = 8, 8
WAIT_SECONDS = 30
SAFE = frozenset(["GET", "HEAD", "OPTIONS"])
_writes: RunVar[CapacityLimiter] = RunVar("kcard.writes")
_uploads: RunVar[CapacityLimiter] = RunVar("kcard.uploads")


async def take_turn(request: Request) -> AsyncIterator[None]:
    """A dependency of all endpoints: a write that runs in a thread waits here, without one. Raises Unavailable.

    Coroutines receive uploads, and store them with `store_in_thread`.
    """
    if request.method in SAFE or iscoroutinefunction(request.scope["endpoint"]):
        yield
        return
    limiter, turn = _limiter(_writes, WRITES), object()
    try:
        with anyio.fail_after(WAIT_SECONDS):
            await limiter.acquire_on_behalf_of(turn)
    except TimeoutError:
        raise Unavailable(f"too many writes: no turn within {WAIT_SECONDS} s") from None
    try:
        yield
    finally:
        limiter.release_on_behalf_of(turn)


async def store_in_thread(store: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """The result of a function that stores an upload, called in a thread."""
    return await to_thread.run_sync(partial(store, *arguments, **named), limiter=_limiter(_uploads, UPLOADS))


def _limiter(of: RunVar[CapacityLimiter], threads: int) -> CapacityLimiter:
    try:
        return of.get()
    except LookupError:
        of.set(limiter := CapacityLimiter(threads))
        return limiter
