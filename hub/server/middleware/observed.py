"""Every request and its answer, as the log and the metrics want to know them."""

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["QUIET", "Exchange", "Observed", "write"]

QUIET = ("/healthz", "/readyz", "/metrics")
REQUEST_ID = "X-Request-Id"
ACCEPTABLE = re.compile(r"[A-Za-z0-9-]{8,64}")
GONE = 499  # the client hung up before there was an answer
LONGEST_PATH = 500

logger = logging.getLogger("kcard.hub.server")


@dataclass(frozen=True)
class Exchange:
    """A request and its answer.

    path      as it was sent, without the query, which may hold signatures
    route     the template that it matched; None: nothing answers there
    seconds   until the last byte was sent
    received  bytes of the request's body that were read
    sent      bytes of the answer's body
    account   whose token was shown; None: nobody's, or one that is not valid
    login     whether a token was shown
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


class Observed:
    """ASGI middleware: tells each observer of every exchange, and names it to the client by X-Request-Id.

    A bug of ours is logged with its traceback, and answered without.
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
        except Exception:
            if status:  # half an answer is out: only ending the connection tells the client
                raise
            logger.exception("a bug in kcard", extra={"fields": {"id": identifier}})
            body = {"error": f"a bug in this hub: its log has more under {identifier}"}
            await JSONResponse(body, 500)(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - begun
            exchange = _exchange(scope, identifier, status or GONE, seconds, received, sent)
            for observer in self._observers:
                observer(exchange)


def write(exchange: Exchange) -> None:
    """An observer: one line in the log for each exchange; none for those of probes."""
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
    """The client's own name for the request, where it could be one; else a new one."""
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if ACCEPTABLE.fullmatch(given) else secrets.token_hex(8)
