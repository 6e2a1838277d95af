"""How much of a request's body is taken.

A body that is read as a whole (JSON, a form) lies in memory, so it is cut off at a few megabytes, whatever its sender
declared. An endpoint that streams its body to the disk counts for itself, and lifts the limit first.
"""

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LARGEST", "BodyLimit", "lift"]

LARGEST = 4 << 20  # bytes
LIFTED = "kcard.body_limit_lifted"


class BodyLimit:
    """ASGI middleware: a body ends with 413 where it grows over `largest` bytes, or says that it will."""

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
            if answered:  # nobody wants the body any more, only to know whether the client is still there
                return {"type": "http.disconnect"}
            raise self._refusal()

        async def noted(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        await self._app(scope, counted, noted)

    def _refusal(self) -> HTTPException:
        # FastAPI passes an HTTPException on; of any other it says only that the body can't be read.
        message = f"a request of this kind may have {self._largest} bytes"
        return HTTPException(413, message, headers={"X-Error-Message": message, "Connection": "close"})


def lift(request: Request) -> None:
    """Let this request's body be of any size: whoever reads it counts, and keeps it out of memory."""
    request.scope[LIFTED] = True


def _declared(scope: Scope) -> int:
    value = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(value) if value.isdigit() else 0
