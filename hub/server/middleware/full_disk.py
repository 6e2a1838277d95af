"""A full disk: a response of its own, wherever a write fails."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.errors import DiskFull
from kcard.hub.server.errors import answer
from kcard.hub.store.disk import is_full

__all__ = ["FullDisk"]


class FullDisk:
    """ASGI middleware: 507 for an OSError that says so, unless the response has started."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except OSError as error:
            if started or not is_full(error):
                raise
            await answer(DiskFull(str(error)))(scope, receive, send)
