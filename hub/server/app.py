"""The ASGI application of a hub server, and its middleware."""

import re

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.errors import DiskFull, KcardError
from kcard.hub.errors import Invalid, NotFound, TooLarge
from kcard.hub.server import monitoring
from kcard.hub.server.caches import Caches
from kcard.hub.server.concurrency import limit_writes
from kcard.hub.server.dependencies import ServerOptions, refuse_nul
from kcard.hub.server.limits import BodyLimit, LoginLimit, RateLimit
from kcard.hub.server.responses import describe_invalid, make_json_error
from kcard.hub.server.routes import (
    access,
    audits,
    commit,
    files,
    lfs,
    models,
    refs,
    repos,
    trees,
    uploads,
)
from kcard.hub.server.web import account, cards, home
from kcard.hub.server.web import files as web_files
from kcard.hub.server.web.forms import remember_visitor
from kcard.hub.server.web.render import make_error_response, wants_html
from kcard.hub.services import HubServices
from kcard.hub.storage import is_full
from kcard.version import __version__

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Nothing may be loaded or run; pages that need more set their own policy.
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "sandbox",
}
YEAR_SECONDS = 31_536_000
BEYOND_ASCII = re.compile(rb"[\x80-\xff]")


def quote_bytes(raw: bytes) -> bytes:
    """Return a raw path or query in ASCII, as RFC 3986 demands: other bytes are percent-encoded."""
    return BEYOND_ASCII.sub(lambda byte: b"%%%02X" % ord(byte[0]), raw)


class RawPath:
    """ASGI middleware: routes match the raw path, and path and query are ASCII below it.

    Clients quote revisions and paths as one segment: the branch `a/b` as `a%2Fb`. Servers decode the path before
    routing, which makes two segments of it; here, parameters declared as Segment are decoded once, after routing.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = scope.get("raw_path") or scope["path"].encode()
            path = quote_bytes(raw.partition(b"?")[0]).decode("ascii")
            scope = {**scope, "path": path, "query_string": quote_bytes(scope["query_string"])}
        await self._app(scope, receive, send)


class SecurityHeaders:
    """ASGI middleware that sets missing security headers. `https`: the hub is reached over HTTPS only."""

    def __init__(self, app: ASGIApp, https: bool = False) -> None:
        self._app = app
        self._headers = dict(SECURITY_HEADERS)
        if https:
            self._headers["Strict-Transport-Security"] = f"max-age={YEAR_SECONDS}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_secured)


class HeadRequests:
    """ASGI middleware that answers HEAD as GET, without the body; downloads have routes for it, which open no file."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or "/resolve/" in scope["path"]:
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        scope["method"] = "GET"
        try:
            await self._app(scope, receive, send_without_body)
        finally:
            scope["method"] = "HEAD"  # as it is logged


# Errors for a request body that could not be read, by status.
READ_FAILURES = {400: Invalid, 413: TooLarge}

ROUTERS = (
    monitoring.router,
    access.router,  # /api/{types} matches /api/whoami-v2
    repos.router,
    audits.router,
    models.router,
    trees.router,
    refs.router,
    commit.router,
    lfs.router,
    uploads.router,
    files.router,
)
PAGES = (
    account.router,
    home.router,
    web_files.router,
    cards.router,  # /{namespace}/{name} matches paths of those above
)


def create_app(hub: HubServices, options: ServerOptions | None = None) -> FastAPI:
    """Return the ASGI application of a shared hub."""
    app = FastAPI(
        title="kcard hub",
        version=__version__,
        description="Knowledge cards with the Hugging Face Hub's protocol.",
        redirect_slashes=False,
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        dependencies=[Depends(refuse_nul), Depends(limit_writes)],
        responses={
            "4XX": {
                "description": "Refused; X-Error-Message has the reason, X-Error-Code a code for programs."
            }
        },
    )
    options = options or ServerOptions()
    app.state.hub = hub
    app.state.options = options
    app.state.caches = Caches(hub)
    app.state.login_limit = LoginLimit(options.counts)
    for router in ROUTERS:
        app.include_router(router)
    for router in PAGES:
        app.include_router(router, dependencies=[Depends(remember_visitor)])
    app.add_exception_handler(KcardError, answer_kcard_error)
    app.add_exception_handler(RequestValidationError, answer_validation_error)
    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_exception_handler(OSError, answer_full_disk)
    # Middleware, from the innermost to the outermost.
    app.add_middleware(HeadRequests)
    app.add_middleware(BodyLimit)
    if options.rate:
        # A hub with a public URL is behind a proxy, whose clients may seem to be on this machine.
        app.add_middleware(RateLimit, options.rate, options.counts, own=options.url is not None)
    app.add_middleware(SecurityHeaders, https=(options.url or "").startswith("https:"))
    app.add_middleware(monitoring.RequestLog)
    app.add_middleware(RawPath)
    return app


def answer_kcard_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, KcardError)
    return make_error_response(request, error)


def answer_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return make_error_response(request, describe_invalid(error.errors()))


def answer_full_disk(_request: Request, error: Exception) -> Response:
    """Return 507 wherever a write fails because the disk is full."""
    if not isinstance(error, OSError) or not is_full(error):
        raise error
    return make_json_error(DiskFull(str(error)))


def answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return make_error_response(request, NotFound("object", "unknown path: see /openapi.json"))
    if error.status_code in READ_FAILURES and wants_html(request):
        return make_error_response(request, READ_FAILURES[error.status_code](error.detail))
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
