"""Reserves a namespace's quota while an upload is received."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import CancelScope, to_thread
from fastapi import Request

from kcard.hub.shared import SharedHub

__all__ = ["declared", "reserved"]

RENEW_SECONDS = 30


@asynccontextmanager
async def reserved(hub: SharedHub, repository_id: int, size: int) -> AsyncIterator[int | None]:
    """Reserve bytes of the quota of the repository's namespace until the block ends; None if it has none.

    Raises TooLarge if the quota has fewer bytes left.
    """
    reservation = await to_thread.run_sync(hub.reservations.reserve, repository_id, size)
    if reservation is None:
        yield None
        return
    renewing = asyncio.ensure_future(_renew(hub, reservation))
    try:
        yield reservation
    finally:
        renewing.cancel()
        with CancelScope(shield=True):
            await to_thread.run_sync(hub.reservations.release, reservation)


def declared(request: Request, largest: int) -> int:
    """Bytes that the body of a request may have: what it declares, at most `largest`."""
    length = request.headers.get("content-length", "")
    return min(int(length), largest) if length.isdigit() else largest


async def _renew(hub: SharedHub, reservation: int) -> None:
    while True:
        await asyncio.sleep(RENEW_SECONDS)
        await to_thread.run_sync(hub.reservations.renew, reservation)
