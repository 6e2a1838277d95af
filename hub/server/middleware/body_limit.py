"""Limit of the size of request bodies.

JSON and forms are read into memory, so they are limited to a few megabytes, whatever Content-Length says. Endpoints
that stream the body to disk lift the limit and count for themselves.
"""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LARGEST", "BodyLimit", "lift"]

LARGEST = 4 << 20  # bytes
LIFTED = "kcard.body_limit_lifted"


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
            return LIFTED not in scope and max(declared, read) > self._largest

        async def counted() -> Message:
            nonlocal read
            if not too_large():
                message = await receive()
                read += len(message.get("body", b""))
                if not too_large():
                    return message
            if answered:  # the application only waits for the client to disconnect
                return {"type": "http.disconnect"}
            raise self._refusal()

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        await self._app(scope, counted, noted)

    def _refusal(self) -> HTTPException:
        # FastAPI passes on an HTTPException; any other becomes a generic error about the body.
        message = f"request body too large: the limit is {self._largest} bytes"
        return HTTPException(413, message, headers={"X-Error-Message": message, "Connection": "close"})


def lift(request: Request) -> None:
    """Lift the limit for this request; the endpoint counts the bytes and keeps them out of memory."""
    request.scope[LIFTED] = True


def _declared(scope: Scope) -> int:
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(value) if value.isdigit() else 0
