"""Observes every request and its response, for the log and the metrics."""

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.hub.server.page.refusals import failed

__all__ = ["QUIET", "Exchange", "Instrumentation", "log_exchange"]

QUIET = ("/healthz", "/readyz", "/metrics")
REQUEST_ID = "X-Request-Id"
ACCEPTABLE = re.compile(r"[A-Za-z0-9-]{8,64}")
GONE = 499  # the client disconnected before the response
LONGEST_PATH = 500

logger = logging.getLogger("kcard.hub.server")


@dataclass(frozen=True)
class Exchange:
    """A request and its response.

    path      as sent, without the query, which may contain signatures
    route     the path template that matched; None: no route
    seconds   until the last byte was sent
    received  bytes of the request's body that were read
    sent      bytes of the response's body
    account   the owner of the token; None: no token, or an invalid one
    login     whether a token was sent
    """

    id: str
    method: str
    path: str
    route: str | None
    status: int
    seconds: float
    received: int
    sent: int
    account: str | None
    address: str | None
    login: bool


class Instrumentation:
    """ASGI middleware: passes each exchange to the observers, and sets X-Request-Id.

    An unexpected exception is logged with its traceback; the response is a 500 without it.
    """

    def __init__(self, app: ASGIApp, *observers: Callable[[Exchange], None]) -> None:
        self._app, self._observers = app, observers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, identifier = time.perf_counter(), _identifier(scope)
        status, received, sent = 0, 0, 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def noted(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = identifier
            sent += len(message.get("body", b""))
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, counted, noted)
        except ClientDisconnect:  # nobody is there to be answered
            pass
        except Exception:
            if status:  # the response has started: all that is left is to close the connection
                raise
            logger.exception("unexpected error", extra={"fields": {"id": identifier}})
            await failed(Request(scope), identifier)(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - begun
            exchange = _exchange(scope, identifier, status or GONE, seconds, received, sent)
            for observer in self._observers:
                observer(exchange)


def log_exchange(exchange: Exchange) -> None:
    """Log an exchange in one line, unless it is a successful probe."""
    if exchange.path in QUIET and exchange.status < 500:
        return
    fields = asdict(exchange)
    del fields["login"]
    fields["ms"] = round(fields.pop("seconds") * 1000, 1)
    level = logging.ERROR if exchange.status >= 500 else logging.INFO
    logger.log(level, "request", extra={"fields": fields})


def _exchange(
    scope: Scope, identifier: str, status: int, seconds: float, received: int, sent: int
) -> Exchange:
    client = scope.get("client")
    return Exchange(
        id=identifier,
        method=scope["method"],
        path=scope["path"][:LONGEST_PATH],
        route=getattr(scope.get("route"), "path", None),
        status=status,
        seconds=seconds,
        received=received,
        sent=sent,
        account=scope["state"].get("account"),
        address=client[0] if client else None,
        login=any(name == b"authorization" for name, _ in scope["headers"]),
    )


def _identifier(scope: Scope) -> str:
    """The client's X-Request-Id if it is well-formed, otherwise a new one."""
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if ACCEPTABLE.fullmatch(given) else secrets.token_hex(8)
