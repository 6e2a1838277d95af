"""The only place where errors become HTTP responses, in the form that the Hugging Face clients read."""

import logging
import re

from starlette.responses import JSONResponse

from kcard.errors import DiskFull, KcardError, Unavailable, UsageError
from kcard.hub.refusals import (
    Busy,
    Conflict,
    Forbidden,
    Gated,
    Invalid,
    NotThere,
    Refused,
    TooLarge,
    TooMany,
    Unknown,
    Unsupported,
    WrongParent,
)

__all__ = ["answer", "status_of"]

STATUS: dict[type[KcardError], int] = {
    Unknown: 401,
    Forbidden: 403,
    NotThere: 404,
    Conflict: 409,
    WrongParent: 412,
    TooLarge: 413,
    TooMany: 429,
    Invalid: 400,
    Unsupported: 501,
    Busy: 503,
    Unavailable: 503,
    DiskFull: 507,
    UsageError: 400,
}
CODES = {"repository": "RepoNotFound", "revision": "RevisionNotFound", "entry": "EntryNotFound"}
LONGEST = 500
RETRY_SECONDS = "5"
SERVER_ERRORS = range(500, 600)
MESSAGES: dict[type[KcardError], str] = {
    Unavailable: "the hub's database or store is unavailable: try again in a moment",
    DiskFull: "the hub's disk is full and nothing was stored: tell the administrator of this hub",
}
INTERNAL = "internal error: see the hub's log"
logger = logging.getLogger("kcard.hub.server")
UNPRINTABLE = re.compile(r"[^\x20-\x7e]+")


def answer(error: KcardError) -> JSONResponse:
    """The response for an error: its status, and headers with the message and a code for programs.

    Headers are limited to printable ASCII, since a line end would begin another one. The message of a server error
    may contain hosts and paths, so it only goes to the log.
    """
    status, message = status_of(error), str(error)
    if not isinstance(error, Refused) and status in SERVER_ERRORS:
        logger.error("%s: %s", type(error).__name__, error)
        message = next((text for kind, text in MESSAGES.items() if isinstance(error, kind)), INTERNAL)
    headers = {"X-Error-Message": UNPRINTABLE.sub(" ", message)[:LONGEST]}
    if code := _code(error):
        headers["X-Error-Code"] = code
    if isinstance(error, NotThere) and error.commit is not None:
        headers["X-Repo-Commit"] = error.commit
    if isinstance(error, Unavailable):
        headers["Retry-After"] = RETRY_SECONDS
    if isinstance(error, (TooMany, Busy)):
        headers["Retry-After"] = str(max(1, round(error.seconds)))
    return JSONResponse({"error": message}, status_code=status, headers=headers)


def status_of(error: KcardError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, Gated):
        return 403 if error.known else 401
    if isinstance(error, NotThere) and not error.known:
        return 401
    return next((status for kind, status in STATUS.items() if isinstance(error, kind)), 500)


def _code(error: KcardError) -> str | None:
    if isinstance(error, Gated):
        return "GatedRepo"
    return CODES.get(error.what) if isinstance(error, NotThere) else None
