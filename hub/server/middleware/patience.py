"""How long the server waits for a client that has stopped sending or taking."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Patience"]

SECONDS = 60.0


class Patience:
    """ASGI middleware: a request whose body stands still for `seconds` ends with 408; an answer that nobody takes
    for so long is given up. A slow client that moves at all may take any time."""

    def __init__(self, app: ASGIApp, seconds: float = SECONDS) -> None:
        self._app, self._seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        complete, stalled = False, False

        async def patient_receive() -> Message:
            nonlocal complete
            if complete:  # what is awaited now is the end of the connection, which may take its time
                return await receive()
            try:
                async with asyncio.timeout(self._seconds):
                    message = await receive()
            except TimeoutError:
                told = f"no byte of the request came for {self._seconds:g} s"
                headers = {"X-Error-Message": told, "Connection": "close"}
                raise HTTPException(408, told, headers=headers) from None
            complete = not message.get("more_body", False)
            return message

        async def patient_send(message: Message) -> None:
            nonlocal stalled
            try:
                async with asyncio.timeout(self._seconds):
                    await send(message)
            except TimeoutError:
                stalled = True
                raise OSError(f"no byte of the answer was taken for {self._seconds:g} s") from None

        try:
            await self._app(scope, patient_receive, patient_send)
        except OSError:
            if not stalled:
                raise
