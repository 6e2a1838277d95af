"""What an operator watches: the log of requests, and health checks."""

import logging
import re
import secrets
import shutil
import time

from fastapi import APIRouter, Request
from sqlalchemy import text
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.errors import KcardError
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.logs import log_request
from kcard.hub.server.web.render import make_crash_response
from kcard.hub.services import HubServices

REQUEST_ID = "X-Request-Id"
VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9-]{8,64}")
CLIENT_LEFT = 499  # the status of a request whose client disconnected before the response

logger = logging.getLogger("kcard.hub.server")


class RequestLog:
    """ASGI middleware that logs each request, and sets X-Request-Id.

    An unexpected exception is logged with its traceback; the response is a 500 without it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        # The client's X-Request-Id if it is well-formed, otherwise a new one.
        identifier = Headers(scope=scope).get(REQUEST_ID, "")
        if not VALID_REQUEST_ID.fullmatch(identifier):
            identifier = secrets.token_hex(8)
        # Count the bytes of both directions while they pass.
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
        except ClientDisconnect:  # nobody would receive an answer
            pass
        except Exception:
            if status:  # the response has started, so the session can only be closed
                raise
            logger.exception("unexpected error", extra={"fields": {"id": identifier}})
            await make_crash_response(Request(scope), identifier)(scope, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - start
            log_request(scope, identifier, status or CLIENT_LEFT, seconds, received, sent)


router = APIRouter(tags=["operation"])

# The sha256 of an empty file, to look up in the store.
EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
MB = 1_000_000
MIN_FREE_BYTES = 100 * MB


@router.get("/healthz")
def health() -> JSONResponse:
    """Check liveness: 200 while a worker answers."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz")
def ready(hub: HubDep) -> JSONResponse:
    """Check readiness: 200 if the database and the store answer and the disk has room, else 503.

    The log has the reason of a failure.
    """
    checks = {"database": _check(hub, "database"), "blobs": _check(hub, "blobs"), "disk": "ok"}
    # The disk of the hub's folder, which all uploads pass through.
    free = shutil.disk_usage(hub.registry.home / "hub").free
    if free < MIN_FREE_BYTES:
        checks["disk"] = f"{free // MB} MB free: at least {MIN_FREE_BYTES // MB} MB are needed"
    if set(checks.values()) == {"ok"}:
        return JSONResponse({"status": "ok", **checks})
    return JSONResponse({"status": "failed", **checks}, 503)


def _check(hub: HubServices, what: str) -> str:
    try:
        if what == "database":
            with hub.database.read() as session:
                session.execute(text("SELECT 1"))
        else:
            hub.blobs.holds(EMPTY_SHA256)
    except (KcardError, OSError) as error:
        logger.error("%s failed: %s", what, error)
        return "failed"
    return "ok"
