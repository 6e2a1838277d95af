"""Turns: an account's requests that take much work run one after the other, so that none delays other accounts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from anyio import CancelScope
from starlette.requests import Request

from kcard.hub.refusals import Invalid

__all__ = ["AccountTurns", "while_connected"]


class AccountTurns:
    """One turn at a time for each account, in order of arrival."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, account_id: int) -> AsyncIterator[None]:
        """Wait for the account's turn, and keep it until the block ends."""
        lock = self._locks.setdefault(account_id, asyncio.Lock())
        async with lock:
            yield


@asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """Cancel the block when the client leaves. The request's body must have been received."""
    with CancelScope() as scope:
        watching = asyncio.ensure_future(_cancel_after(request, scope))
        try:
            yield
        finally:
            watching.cancel()
    if scope.cancelled_caught:
        raise Invalid("the client disconnected before the end of the request")


async def _cancel_after(request: Request, scope: CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
