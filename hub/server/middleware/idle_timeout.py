"""Timeout for clients that stop sending or receiving."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["IdleTimeout"]

SECONDS = 60.0


class IdleTimeout:
    """ASGI middleware: 408 if no byte of the body arrives for `seconds`; a response that stalls for as long is dropped.

    Slow clients that make progress are not limited.
    """

    def __init__(self, app: ASGIApp, seconds: float = SECONDS) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        complete, stalled = False, False

        async def timed_receive() -> Message:
            nonlocal complete
            if complete:  # now it only waits for the client to disconnect
                return await receive()
            try:
                async with asyncio.timeout(self._seconds):
                    message = await receive()
            except TimeoutError:
                why = f"request timed out: no data received for {self._seconds:g} s"
                headers = {"X-Error-Message": why, "Connection": "close"}
                raise HTTPException(408, why, headers=headers) from None
            complete = not message.get("more_body", False)
            return message

        async def timed_send(message: Message) -> None:
            nonlocal stalled
            try:
                async with asyncio.timeout(self._seconds):
                    await send(message)
            except TimeoutError:
                stalled = True
                raise OSError(f"response timed out: no data accepted for {self._seconds:g} s") from None

        try:
            await self._app(scope, timed_receive, timed_send)
        except OSError:
            if not stalled:
                raise
