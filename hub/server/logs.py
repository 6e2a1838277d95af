"""The log of the server, and the middleware that reports each request to it and to the metrics."""

import json
import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.hub.server.web.render import make_crash_response

__all__ = ["QUIET", "Exchange", "Instrumentation", "LogFormat", "configuration", "log_exchange", "redact"]


# Logging: lines of text or JSON on stderr, with secrets redacted.
#
# Headers and queries are never logged; redaction is for secrets in paths and messages.

LogFormat: TypeAlias = Literal["text", "json"]

SECRETS = (
    (re.compile(r"\b(kc|hf)_[A-Za-z0-9_-]{8,}"), r"\1_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), r"\1 ***"),
    (re.compile(r"(?i)\b(sig|signature|token|access_token|password|secret)=[^&\s\"']+"), r"\1=***"),
    (re.compile(r"://[^/@\s]*@"), "://***@"),
)
UNPRINTABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def redact(text: str) -> str:
    """Remove tokens, signatures and passwords from a text."""
    for secret, instead in SECRETS:
        text = secret.sub(instead, text)
    return text


class Text(logging.Formatter):
    """Formats a record as one line: time, level, message and fields."""

    def format(self, record: logging.LogRecord) -> str:
        pairs = " ".join(f"{key}={value}" for key, value in _fields(record).items() if value is not None)
        line = f"{_time(record)} {record.levelname.lower():<7} {record.getMessage()} {pairs}".rstrip()
        line = line.replace("\n", " ")  # one line for each event
        traceback = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return UNPRINTABLE.sub("?", redact(line + traceback))


class Json(logging.Formatter):
    """Formats a record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(
            {
                key: redact(value) if isinstance(value, str) else value
                for key, value in line.items()
                if value is not None
            }
        )


def configuration(form: LogFormat) -> dict[str, Any]:
    """Return the configuration of kcard's and uvicorn's logs, for logging.config.dictConfig."""
    kind = Json if form == "json" else Text
    logger = {"handlers": ["stderr"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": f"{kind.__module__}.{kind.__qualname__}"}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "stream": "ext://sys.stderr",
            }
        },
        "loggers": {
            "kcard.hub": logger,
            "uvicorn": logger,
        },
        "root": {"handlers": ["stderr"], "level": "WARNING"},
    }


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


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
    """ASGI middleware that passes each exchange to the observers, and sets X-Request-Id.

    An unexpected exception is logged with its traceback; the response is a 500 without it.
    """

    def __init__(self, app: ASGIApp, *observers: Callable[[Exchange], None]) -> None:
        self._app, self._observers = app, observers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        # The client's X-Request-Id if it is well-formed, otherwise a new one.
        sent_id = Headers(scope=scope).get(REQUEST_ID, "")
        identifier = sent_id if ACCEPTABLE.fullmatch(sent_id) else secrets.token_hex(8)
        status, received, sent = 0, 0, 0

        async def count_received() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def send_with_id(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID] = identifier
            sent += len(message.get("body", b""))
            await send(message)

        scope.setdefault("state", {})
        try:
            await self._app(scope, count_received, send_with_id)
        except ClientDisconnect:  # nobody is there to be answered
            pass
        except Exception:
            if status:  # the response has started: all that is left is to close the connection
                raise
            logger.exception("unexpected error", extra={"fields": {"id": identifier}})
            await make_crash_response(Request(scope), identifier)(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - start
            client = scope.get("client")
            exchange = Exchange(
                id=identifier,
                method=scope["method"],
                path=scope["path"][:LONGEST_PATH],
                route=getattr(scope.get("route"), "path", None),
                status=status or GONE,
                seconds=seconds,
                received=received,
                sent=sent,
                account=scope["state"].get("account"),
                address=client[0] if client else None,
                login=any(name == b"authorization" for name, _ in scope["headers"]),
            )
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
