"""Limits on what a worker does at a time: expensive reads, writes, and the slow requests of one account.

Requests wait for their turn without occupying a thread, so that downloads overtake them.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from inspect import iscoroutinefunction
from typing import Annotated, Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Depends, Request

from kcard.errors import Unavailable
from kcard.hub.errors import Invalid

T = TypeVar("T")

MAX_READS, MAX_WRITES = 4, 8  # in each worker at a time
MAX_WAIT_SECONDS = 30
SAFE_METHODS = frozenset(["GET", "HEAD", "OPTIONS"])
_limiters: RunVar[dict[str, CapacityLimiter]] = RunVar("kcard.limiters")
_accounts: RunVar["WeakValueDictionary[int, asyncio.Lock]"] = RunVar("kcard.accounts")


def limiter(what: str, most: int) -> CapacityLimiter:
    """Return the limiter for `most` of these at a time in a worker, made on first use by its event loop."""
    limiters = _limiters.get({})
    _limiters.set(limiters)
    return limiters.setdefault(what, CapacityLimiter(most))


@asynccontextmanager
async def take_turn(what: str, most: int, seconds: float = math.inf) -> AsyncIterator[None]:
    """Wait for a turn without occupying a thread. Raises Unavailable after `seconds`."""
    turns, turn = limiter(what, most), object()
    try:
        with anyio.fail_after(seconds):
            await turns.acquire_on_behalf_of(turn)
    except TimeoutError:
        raise Unavailable(f"too many {what}: no turn within {seconds} s") from None
    try:
        yield
    finally:
        turns.release_on_behalf_of(turn)


async def limit_expensive() -> AsyncIterator[None]:
    async with take_turn("reads", MAX_READS):
        yield


# A dependency of routes that need much processor time or memory. The turn ends before the response is sent, so that
# slow clients delay nobody. It is resolved first: where another dependency reads the request's body, which a client may
# send slowly, declare an ExpensiveTurn as the endpoint's last parameter instead.
EXPENSIVE = Depends(limit_expensive, scope="function")
ExpensiveTurn: TypeAlias = Annotated[None, EXPENSIVE]


async def limit_writes(request: Request) -> AsyncIterator[None]:
    """Limit the writes that run at a time. All endpoints depend on it. Raises Unavailable.

    Writers wait for each other in the database; here they wait without occupying the threads of reads. Coroutines
    receive uploads, and store them `run_in_write_thread`.
    """
    if request.method in SAFE_METHODS or iscoroutinefunction(request.scope["endpoint"]):
        yield
        return
    async with take_turn("writes", MAX_WRITES, MAX_WAIT_SECONDS):
        yield


async def run_in_write_thread(work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a function that reads or stores an upload in a thread, as one of the limited writes; return its result."""
    return await to_thread.run_sync(partial(work, *arguments, **named), limiter=limiter("writes", MAX_WRITES))


@asynccontextmanager
async def lock_account(account_id: int) -> AsyncIterator[None]:
    """Run one block of the account at a time, in order of arrival: its slow requests delay no other account."""
    locks = _accounts.get(WeakValueDictionary())
    _accounts.set(locks)
    lock = locks.setdefault(account_id, asyncio.Lock())
    async with lock:
        yield


@asynccontextmanager
async def cancel_on_disconnect(request: Request) -> AsyncIterator[None]:
    """Cancel the block when the client disconnects. The request's body must have been received."""

    async def cancel() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    with CancelScope() as scope:
        watching = asyncio.ensure_future(cancel())
        try:
            yield
        finally:
            watching.cancel()
    if scope.cancelled_caught:
        raise Invalid("the client disconnected before the end of the request")
