"""Turns for requests that need much processor time or memory.

A worker answers a few of them at a time, so that many at once take no more memory than a few; the others wait without a
thread, and downloads pass by. The turn ends before the response is sent: slow clients hold up nobody.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

__all__ = ["AT_ONCE", "IN_TURN", "InTurn"]

AT_ONCE = 4


async def _turn(request: Request) -> AsyncIterator[None]:
    turns: asyncio.Semaphore = request.app.state.turns
    async with turns:
        yield


# A dependency of routes. It is met first: where another one reads the request's body, which a client may send slowly,
# take an InTurn as the endpoint's last parameter instead.
IN_TURN = Depends(_turn, scope="function")
InTurn: TypeAlias = Annotated[None, IN_TURN]
