"""Security headers for browsers."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["SecurityHeaders"]

ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# Nothing is loaded or run; pages that need more set their own policy.
POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox"
YEAR = 31_536_000


class SecurityHeaders:
    """ASGI middleware: sets missing headers. `https`: the hub is reached by https only."""

    def __init__(self, app: ASGIApp, https: bool = False) -> None:
        self._app = app
        self._headers = ALWAYS | {"Content-Security-Policy": POLICY}
        if https:
            self._headers["Strict-Transport-Security"] = f"max-age={YEAR}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, secured)
