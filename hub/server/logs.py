"""The logs of the servers: lines of text or JSON on stderr, with secrets redacted.

Headers and queries are never logged; redaction is for secrets in paths and messages.
"""

import json
import logging
import re
import time
from typing import Any, Literal, TypeAlias

from starlette.types import Scope

LogFormat: TypeAlias = Literal["text", "json"]

SECRETS = (
    (re.compile(r"\b(kc|hf)_[A-Za-z0-9_-]{8,}"), r"\1_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), r"\1 ***"),
    (re.compile(r"(?i)\b(sig|signature|token|access_token|password|secret)=[^&\s\"']+"), r"\1=***"),
    (re.compile(r"://[^/@\s]*@"), "://***@"),
)
UNPRINTABLE_CHARACTER = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
PLAIN_VALUE = re.compile(r"[^\s\"'=\\]+")
PROBES = ("/healthz", "/readyz")  # which are neither limited nor logged
MAX_PATH_CHARACTERS = 500

logger = logging.getLogger("kcard.hub.server")


def redact(text: str) -> str:
    """Remove tokens, signatures and passwords from a text."""
    for secret, instead in SECRETS:
        text = secret.sub(instead, text)
    return text


class TextFormatter(logging.Formatter):
    """Formats a record as one line: time, level, message and fields. A value with blanks, quotes or "=", which a client
    may have sent as its address or path, is quoted, so that it adds no field."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_time(record), f"{record.levelname.lower():<7}", record.getMessage()]
        for key, value in _fields(record).items():
            text = str(value)
            if value is not None:
                parts.append(f"{key}={text if PLAIN_VALUE.fullmatch(text) else json.dumps(text)}")
        line = " ".join(parts).replace("\n", " ")  # one line for each event
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return UNPRINTABLE_CHARACTER.sub("?", redact(line))


class JsonFormatter(logging.Formatter):
    """Formats a record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record), "level": record.levelname.lower(), "message": record.getMessage()}
        line |= _fields(record)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        shown = {}
        for key, value in line.items():
            if value is not None:
                shown[key] = redact(value) if isinstance(value, str) else value
        return json.dumps(shown)


def log_configuration(form: LogFormat) -> dict[str, Any]:
    """Return the configuration of kcard's and uvicorn's logs, for logging.config.dictConfig."""
    formatter = {"json": JsonFormatter, "text": TextFormatter}[form]
    settings = {"handlers": ["stderr"], "level": "INFO", "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": f"{formatter.__module__}.{formatter.__qualname__}"}},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}
        },
        "loggers": {"kcard.hub": settings, "kcard.serve": settings, "uvicorn": settings},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
    }


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def log_request(scope: Scope, identifier: str, status: int, seconds: float, received: int, sent: int) -> None:
    """Log a request as one line, unless it is a successful probe.

    The path is logged without the query, which may contain signatures; `account` is the owner of the token.
    """
    if scope["path"] in PROBES and status < 500:
        return
    address, _port = scope.get("client") or (None, None)
    fields = {
        "id": identifier,
        "method": scope["method"],
        "path": scope["path"][:MAX_PATH_CHARACTERS],
        "route": getattr(scope.get("route"), "path", None),
        "status": status,
        "received": received,
        "sent": sent,
        "account": scope["state"].get("account"),
        "address": address,
        "ms": round(seconds * 1000, 1),
    }
    level = logging.INFO
    if status >= 500:
        level = logging.ERROR
    logger.log(level, "request", extra={"fields": fields})
