"""What an operator watches: the log of requests, health checks, and metrics for Prometheus.

Each worker counts in its own file of one folder; the worker that answers adds up all files, including those of killed
workers. Without a folder, a process reports its own counts.
"""

import logging
import re
import secrets
import shutil
import time

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from sqlalchemy import text
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.errors import KcardError
from kcard.hub.permissions import require_administrator
from kcard.hub.server.dependencies import HubDep, OptionalIdentity
from kcard.hub.server.limits import is_this_machine
from kcard.hub.server.logs import PROBES, log_request
from kcard.hub.server.web.render import make_crash_response
from kcard.hub.services import HubServices

REQUEST_ID = "X-Request-Id"
VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9-]{8,64}")
CLIENT_LEFT = 499  # the status of a request whose client disconnected before the response
TIME_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)  # seconds
METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE"}

logger = logging.getLogger("kcard.hub.server")


class Metrics:
    """Counts the requests of a worker; reports those of all workers, which share a folder."""

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        self._own = own = CollectorRegistry()
        route = ("method", "route")
        self._requests = Counter("kcard_requests", "Requests answered.", (*route, "status"), registry=own)
        self._seconds = Histogram(
            "kcard_request_seconds", "Time to the last byte.", route, registry=own, buckets=TIME_BUCKETS
        )
        self._received = Counter("kcard_received_bytes", "Bytes of request bodies.", registry=own)
        self._sent = Counter("kcard_sent_bytes", "Bytes of response bodies.", registry=own)
        self._refused = Counter("kcard_logins_refused", "Requests with an invalid token.", registry=own)
        self._limited = Counter("kcard_rate_limited", "Requests refused by the rate limit.", registry=own)

    def count(self, scope: Scope, status: int, seconds: float, received: int, sent: int) -> None:
        """Count a request, unless it is a probe."""
        if scope["path"] in PROBES:
            return
        method = scope["method"] if scope["method"] in METHODS else "other"
        route = getattr(scope.get("route"), "path", "unmatched")
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(seconds)
        self._received.inc(received)
        self._sent.inc(sent)
        if status == 401 and "authorization" in Headers(scope=scope):
            self._refused.inc()
        if status == 429:
            self._limited.inc()

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        if self._folder is None:
            return generate_latest(self._own)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


class Instrumentation:
    """ASGI middleware that logs and counts each request, and sets X-Request-Id.

    An unexpected exception is logged with its traceback; the response is a 500 without it.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

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
            self._metrics.count(scope, status or CLIENT_LEFT, seconds, received, sent)
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


@router.get("/metrics")
def metrics(request: Request, identity: OptionalIdentity) -> Response:
    """Get metrics for Prometheus, on the same machine or with an administrator's token with scope admin."""
    if not is_this_machine(request.scope):
        require_administrator(identity)
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)
