"""Limit of the size of request bodies.

JSON and forms are read into memory, so they are limited to a megabyte, whatever Content-Length says. Endpoints that
take larger ones, or stream the body to disk and count for themselves, change the limit.
"""

import math

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LARGEST", "BodyLimit", "lift"]

LARGEST = 1 << 20  # bytes
LIMIT = "kcard.body_limit"


class BodyLimit:
    """ASGI middleware: 413 for a body that has, or declares, more than `largest` bytes."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST) -> None:
        self._app, self._largest = app, largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared, read, answered = _declared(scope), 0, False

        def too_large() -> bool:
            return bool(max(declared, read) > scope.get(LIMIT, self._largest))

        async def counted() -> Message:
            nonlocal read
            if not too_large():
                message = await receive()
                read += len(message.get("body", b""))
                if not too_large():
                    return message
            if answered:  # the application only waits for the client to disconnect
                return {"type": "http.disconnect"}
            raise _refusal(scope.get(LIMIT, self._largest))

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        await self._app(scope, counted, noted)


def lift(request: Request, largest: float = math.inf) -> None:
    """Change the limit for this request. Without one, the endpoint counts the bytes and keeps them out of memory."""
    request.scope[LIMIT] = largest


def _refusal(largest: float) -> HTTPException:
    # FastAPI passes on an HTTPException; any other becomes a generic error about the body.
    message = f"request body too large: the limit is {largest} bytes"
    return HTTPException(413, message, headers={"X-Error-Message": message, "Connection": "close"})


def _declared(scope: Scope) -> int:
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(value) if value.isdigit() else 0
