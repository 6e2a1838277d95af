"""Threads of writes. Writers wait for each other, and must not occupy the threads that serve reads meanwhile."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, TypeVar

import anyio
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from starlette.requests import Request

from kcard.errors import Unavailable

__all__ = ["take_turn", "write_in_thread"]

T = TypeVar("T")
AT_ONCE = 8  # in each worker; one of them has the database, the others check what they will write
WAIT_SECONDS = 30
SAFE = frozenset(["GET", "HEAD", "OPTIONS"])
_limiter: RunVar[CapacityLimiter] = RunVar("kcard.writes")


async def take_turn(request: Request) -> AsyncIterator[None]:
    """A dependency of all endpoints: a write that runs in a thread waits here without one.

    Coroutines, which receive uploads, use `write_in_thread` where they write. Raises Unavailable.
    """
    if request.method in SAFE or iscoroutinefunction(request.scope["endpoint"]):
        yield
        return
    limiter, turn = _limit(), object()
    try:
        with anyio.fail_after(WAIT_SECONDS):
            await limiter.acquire_on_behalf_of(turn)
    except TimeoutError:
        raise Unavailable(f"too many writes: no turn within {WAIT_SECONDS} s") from None
    try:
        yield
    finally:
        limiter.release_on_behalf_of(turn)


async def write_in_thread(write: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """The result of a function that writes, called in a thread."""
    return await to_thread.run_sync(partial(write, *arguments, **named), limiter=_limit())


def _limit() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        _limiter.set(limiter := CapacityLimiter(AT_ONCE))
        return limiter
