"""HEAD requests: the response of GET, without its body."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Head"]

NOT_ALLOWED = 405


class Head:
    """ASGI middleware: answers HEAD wherever there is a GET. Endpoints of their own for HEAD come first."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        refused = False

        async def noted(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] == NOT_ALLOWED:
                refused = "GET" in Headers(raw=message["headers"]).get("allow", "")
            if not refused:
                await send(message)

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app(scope, receive, noted)
        if refused:
            scope["method"] = "GET"
            try:
                await self._app(scope, receive, without_body)
            finally:
                scope["method"] = "HEAD"  # as it is logged
