"""What an operator watches: the log of requests, health checks, and metrics for Prometheus.

Each worker counts in its own file of one folder; the worker that answers adds up all files, including those of killed
workers. Without a folder, a process reports its own counts.
"""

import logging
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import func, select, text
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.errors import KcardError
from kcard.hub.db.models import Account, Holding, Publication, Repository
from kcard.hub.db.session import Database
from kcard.hub.permissions import require_administrator
from kcard.hub.server.dependencies import HubDep, OptionalIdentity
from kcard.hub.server.limits import PROBES, is_this_machine
from kcard.hub.server.responses import Responses
from kcard.hub.server.web.render import make_crash_response
from kcard.hub.services import HubServices

# Requests: each is reported to the log and to the metrics.

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
            # Report the exchange.
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
    """Log an exchange as one line, unless it is a successful probe."""
    if exchange.path in PROBES and exchange.status < 500:
        return
    fields = asdict(exchange)
    del fields["login"]
    fields["ms"] = round(fields.pop("seconds") * 1000, 1)
    level = logging.ERROR if exchange.status >= 500 else logging.INFO
    logger.log(level, "request", extra={"fields": fields})


# Health checks: liveness and readiness.

# The sha256 of an empty file, to look up in the store.
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
UNAVAILABLE: Responses = {
    503: {"description": "The database or the store is unavailable, or the disk is full"}
}
MB = 1_000_000
LEAST_FREE = 100 * MB

health_router = APIRouter(tags=["operation"])


@health_router.get("/healthz", summary="Check liveness", responses=UNAVAILABLE)
def health(
    hub: HubDep,
    deep: Annotated[bool, Query(description="Also check the database, the store and the disk.")] = False,
) -> JSONResponse:
    """200 while a worker answers."""
    return ready(hub) if deep else JSONResponse({"status": "ok"})


@health_router.get("/readyz", summary="Check readiness", responses=UNAVAILABLE)
def ready(hub: HubDep) -> JSONResponse:
    """200 if the database and the store answer and the disk has room, else 503. The log has the reason of a failure."""
    checks = {"database": _check(hub, "database"), "blobs": _check(hub, "blobs")}
    # The disk of the hub's folder, which all uploads pass through.
    free = shutil.disk_usage(hub.registry.home / "hub").free
    checks["disk"] = (
        "ok" if free >= LEAST_FREE else f"{free // MB} MB free: at least {LEAST_FREE // MB} MB are needed"
    )
    ok = all(state == "ok" for state in checks.values())
    return JSONResponse({"status": "ok" if ok else "failed", **checks}, 200 if ok else 503)


def _check(hub: HubServices, what: str) -> str:
    try:
        if what == "database":
            with hub.database.read() as session:
                session.execute(text("SELECT 1"))
        else:
            hub.blobs.holds(EMPTY)
    except (KcardError, OSError) as error:
        logger.error("%s failed: %s", what, error)
        return "failed"
    return "ok"


SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE"}
KEEP_SECONDS = 60
CONTENTS = (
    ("accounts", "Users and organisations."),
    ("repositories", "Repositories."),
    ("publications", "Published versions."),
    ("blobs", "Distinct files in commits."),
    ("blob_bytes", "Bytes of these files."),
)

metrics_router = APIRouter(tags=["operation"])


class Metrics:
    """Counts the requests of a worker; reports those of all workers."""

    def __init__(self, database: Database, folder: str | None = None) -> None:
        self._folder = folder
        self._own = own = CollectorRegistry()
        route, outcome = ("method", "route"), ("method", "route", "status")
        self._requests = Counter("kcard_requests", "Requests answered.", outcome, registry=own)
        self._seconds = Histogram(
            "kcard_request_seconds", "Time to the last byte.", route, registry=own, buckets=SECONDS
        )
        self._received = Counter("kcard_received_bytes", "Bytes of request bodies.", registry=own)
        self._sent = Counter("kcard_sent_bytes", "Bytes of response bodies.", registry=own)
        self._refused = Counter("kcard_logins_refused", "Requests with an invalid token.", registry=own)
        self._limited = Counter("kcard_rate_limited", "Requests refused by the rate limit.", registry=own)
        self._contents = CollectorRegistry()
        self._contents.register(ContentsCollector(database))

    def count(self, exchange: Exchange) -> None:
        """Count an exchange, unless it is a probe."""
        if exchange.path in PROBES:
            return
        method = exchange.method if exchange.method in METHODS else "other"
        route = exchange.route or "unmatched"
        self._requests.labels(method, route, str(exchange.status)).inc()
        self._seconds.labels(method, route).observe(exchange.seconds)
        self._received.inc(exchange.received)
        self._sent.inc(exchange.sent)
        if exchange.status == 401 and exchange.login:
            self._refused.inc()
        if exchange.status == 429:
            self._limited.inc()

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        counts = self._own
        if self._folder is not None:
            counts = CollectorRegistry()
            MultiProcessCollector(counts, path=self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(counts) + generate_latest(self._contents)


class ContentsCollector(Collector):
    """The contents of the hub, read from the database at most once a minute."""

    def __init__(self, database: Database) -> None:
        self._database, self._lock = database, threading.Lock()
        self._read_at, self._values = float("-inf"), [0.0] * len(CONTENTS)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        with self._lock:
            if time.monotonic() - self._read_at > KEEP_SECONDS:
                blobs = select(Holding.sha256, Holding.size).distinct().subquery()
                queries = [
                    select(func.count()).select_from(table) for table in (Account, Repository, Publication)
                ]
                queries.append(select(func.count()).select_from(blobs))
                queries.append(select(func.coalesce(func.sum(blobs.c.size), 0)))
                with self._database.read() as session:
                    self._values = [float(session.scalar(query) or 0) for query in queries]
                self._read_at = time.monotonic()
            values = self._values
        for (name, description), value in zip(CONTENTS, values, strict=True):
            yield GaugeMetricFamily(f"kcard_{name}", description, value)


def get_metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


@metrics_router.get(
    "/metrics",
    summary="Get metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}, "description": "The metrics of all workers"}},
)
def metrics(
    request: Request, identity: OptionalIdentity, counters: Annotated[Metrics, Depends(get_metrics)]
) -> Response:
    """For programs on the same machine, or with an administrator's token with scope admin."""
    if not is_this_machine(request.scope):
        require_administrator(identity)
    return Response(counters.text(), media_type=CONTENT_TYPE_LATEST)
