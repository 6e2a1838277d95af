"""Logging: lines of text or JSON on stderr, with secrets redacted.

Headers and queries are never logged; redaction is for secrets in paths and messages.
"""

import json
import logging
import re
import time
from typing import Any, Literal, TypeAlias

__all__ = ["LogFormat", "configuration", "redacted"]

LogFormat: TypeAlias = Literal["text", "json"]

SECRETS = (
    (re.compile(r"\b(kc|hf)_[A-Za-z0-9_-]{8,}"), r"\1_***"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), r"\1 ***"),
    (re.compile(r"(?i)\b(sig|signature|token|access_token|password|secret)=[^&\s\"']+"), r"\1=***"),
    (re.compile(r"://[^/@\s]*@"), "://***@"),
)
UNPRINTABLE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def redacted(text: str) -> str:
    """The text without tokens, signatures and passwords."""
    for secret, instead in SECRETS:
        text = secret.sub(instead, text)
    return text


class Text(logging.Formatter):
    """Text: time, level, message and fields."""

    def format(self, record: logging.LogRecord) -> str:
        given = " ".join(f"{key}={value}" for key, value in _fields(record).items() if value is not None)
        line = f"{_time(record)} {record.levelname.lower():<7} {record.getMessage()} {given}".rstrip()
        line = line.replace("\n", " ")  # one line for each event
        traceback = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return UNPRINTABLE.sub("?", redacted(line + traceback))


class Json(logging.Formatter):
    """JSON lines."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps({key: _safe(value) for key, value in line.items() if value is not None})


def configuration(form: LogFormat) -> dict[str, Any]:
    """The configuration of kcard's and uvicorn's logs, for logging.config.dictConfig."""
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


def _safe(value: Any) -> Any:
    return redacted(value) if isinstance(value, str) else value


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"
