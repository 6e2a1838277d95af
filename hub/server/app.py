"""The ASGI application of a hub server, its middleware, and the description of its API."""

from collections.abc import Iterator
from dataclasses import dataclass

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.errors import DiskFull, KcardError
from kcard.hub.errors import Invalid, NotFound, TooLarge
from kcard.hub.server import monitoring
from kcard.hub.server.caches import Caches
from kcard.hub.server.dependencies import RawPath, ServerOptions, refuse_nul, remember_visitor
from kcard.hub.server.limits import BodyLimit, LoginLimit, RateLimit, limit_writes
from kcard.hub.server.monitoring import Instrumentation, log_exchange
from kcard.hub.server.responses import Json, make_json_error
from kcard.hub.server.routes import accounts, commit, files, lfs, models, repos, tree
from kcard.hub.server.web import account, pages
from kcard.hub.server.web import files as web_files
from kcard.hub.server.web.render import make_error_response, page, wants_html
from kcard.hub.services import HubServices
from kcard.hub.storage import is_full
from kcard.version import __version__

# Security headers for browsers.

ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
# Nothing may be loaded or run; pages that need more set their own policy.
POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; sandbox"
YEAR = 31_536_000


class SecurityHeaders:
    """ASGI middleware that sets missing security headers. `https`: the hub is reached over HTTPS only."""

    def __init__(self, app: ASGIApp, https: bool = False) -> None:
        self._app = app
        self._headers = ALWAYS | {"Content-Security-Policy": POLICY}
        if https:
            self._headers["Strict-Transport-Security"] = f"max-age={YEAR}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_secured)


# HEAD requests: the response of GET, without its body.

NOT_ALLOWED = 405


class HeadRequests:
    """ASGI middleware that answers HEAD wherever there is a GET route; explicit HEAD routes take precedence."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        refused = False

        async def send_unless_refused(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and message["status"] == NOT_ALLOWED:
                refused = "GET" in Headers(raw=message["headers"]).get("allow", "")
            if not refused:
                await send(message)

        async def send_without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app(scope, receive, send_unless_refused)
        if refused:
            scope["method"] = "GET"
            try:
                await self._app(scope, receive, send_without_body)
            finally:
                scope["method"] = "HEAD"  # as it is logged


# The description of the API: OpenAPI for programs, and a page without scripts for people.

docs_router = APIRouter(include_in_schema=False)

# Descriptions of parameters by name, for endpoints that have none.
PARAMETERS = {
    "address": "The account's part of the upload URL.",
    "author": "Namespace of the repositories.",
    "blobs": "Include the size and hashes of each file.",
    "branch": "Branch name.",
    "cardData": "Include the metadata of README.md.",
    "config": "Include parts of config.json.",
    "create_pr": "Not supported: 501 if set.",
    "cursor": "Start of the page, from the Link header of the one before.",
    "expand": "Properties to return, or whether to return more of each item.",
    "expand[]": "Properties to return.",
    "full": "Include all properties.",
    "gated": "Whether the repositories are gated.",
    "limit": "Page size.",
    "name": "Name of the repository within its namespace.",
    "namespace": "User or organisation that owns the repository.",
    "number": "Number of the part, from 1.",
    "oid": "sha256 of the file.",
    "organisation": "Name of the organisation.",
    "path": "Path of a file or folder in the repository.",
    "pipeline_tag": "Task of the repositories.",
    "recursive": "Include subfolders.",
    "revision": "Branch, tag or commit, quoted as one segment.",
    "search": "Words of the name or a tag.",
    "securityStatus": "Include the security status.",
    "status": "pending, accepted or rejected.",
    "tag": "Tag name.",
    "ticket": "Ticket from the upload URL.",
    "types": "models or datasets.",
    "user": "Name of the user.",
}
REFUSAL = "#/components/responses/Refusal"
# Any operation may return these: invalid input, missing or invalid token, too many requests.
ANYWHERE = ("400", "401", "429")
OF_REPOSITORIES = ("403", "404")
VALIDATION_ERROR = "422"  # FastAPI's default; this server returns 400 instead
REFUSED: Json = {
    "description": "Refused; X-Error-Message has the reason, X-Error-Code a code for programs.",
    "headers": {
        "X-Error-Code": {
            "description": "RepoNotFound, RevisionNotFound, EntryNotFound or GatedRepo, if applicable.",
            "schema": {"type": "string"},
        },
        "X-Error-Message": {"description": "The reason, in one line.", "schema": {"type": "string"}},
    },
    "content": {
        "application/json": {
            "schema": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
        }
    },
}
BEARER: Json = {"type": "http", "scheme": "bearer", "description": "A token of this hub: kc_..."}


@dataclass(frozen=True)
class Operation:
    """An operation, as the page shows it."""

    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[tuple[str, str], ...]
    answers: tuple[tuple[str, str], ...]


def describe_api(app: FastAPI) -> None:
    """Add error responses, the token scheme and parameter descriptions to the application's OpenAPI."""

    def openapi() -> Json:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes
            )
            components = schema.setdefault("components", {})
            components.setdefault("responses", {})["Refusal"] = REFUSED
            components["securitySchemes"] = {"token": BEARER}
            schema["security"] = [{}, {"token": []}]
            for path, _, operation in iterate_operations(schema):
                answers = operation["responses"]
                answers.pop(VALIDATION_ERROR, None)
                for status in (*ANYWHERE, *(OF_REPOSITORIES if "{name}" in path else ())):
                    answers.setdefault(status, {"$ref": REFUSAL})
                for parameter in operation.get("parameters", ()):
                    text = PARAMETERS.get(parameter["name"])
                    if text and not parameter.get("description"):
                        parameter["description"] = text
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


@docs_router.get("/docs")
def docs(request: Request) -> Response:
    """Show the description as a page."""
    app: FastAPI = request.app
    operations = [
        Operation(
            method=method.upper(),
            path=path,
            summary=operation.get("summary", ""),
            description=operation.get("description", ""),
            parameters=tuple(
                (parameter["name"], parameter.get("description", ""))
                for parameter in operation.get("parameters", ())
            ),
            answers=tuple(
                (status, answer["description"])
                for status, answer in sorted(operation["responses"].items())
                if "$ref" not in answer
            ),
        )
        for path, method, operation in iterate_operations(app.openapi())
    ]
    return page("openapi.html", title=app.title, operations=operations, here="")


def iterate_operations(schema: Json) -> Iterator[tuple[str, str, Json]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


# The application.

# Errors for a request body that could not be read, by status.
READ_FAILURES = {400: Invalid, 413: TooLarge}

ROUTERS = (
    monitoring.health_router,
    monitoring.metrics_router,
    accounts.router,
    repos.validate_router,
    repos.router,
    models.audits_router,
    models.router,
    tree.trees_router,
    tree.refs_router,
    accounts.access_router,
    tree.branches_tags_router,
    commit.preupload_router,
    commit.router,
    lfs.router,
    lfs.large_files_router,
    files.router,
)
PAGES = (
    docs_router,
    account.login_router,
    account.tokens_router,
    pages.home_router,
    pages.leaderboard_router,
    pages.feed_router,
    web_files.router,
    pages.router,  # /{namespace}/{name} matches paths of those above
    account.access_router,
    account.account_page_router,
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
    describe_api(app)
    app.add_exception_handler(KcardError, answer_kcard_error)
    app.add_exception_handler(RequestValidationError, answer_validation_error)
    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_exception_handler(OSError, answer_full_disk)
    # Middleware, from the innermost to the outermost.
    app.state.metrics = monitoring.Metrics(hub.database, options.metrics)
    app.add_middleware(HeadRequests)
    app.add_middleware(BodyLimit)
    if options.rate:
        # A hub with a public URL is behind a proxy, whose clients may seem to be on this machine.
        app.add_middleware(RateLimit, options.rate, options.counts, own=options.url is not None)
    app.add_middleware(SecurityHeaders, https=(options.url or "").startswith("https:"))
    app.add_middleware(Instrumentation, app.state.metrics.count, log_exchange)
    app.add_middleware(RawPath)
    return app


def answer_kcard_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, KcardError)
    return make_error_response(request, error)


def answer_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return make_error_response(request, Invalid(f"{where}: {first['msg']}"))


def answer_full_disk(_request: Request, error: Exception) -> Response:
    """Return 507 wherever a write fails because the disk is full."""
    if not isinstance(error, OSError) or not is_full(error):
        raise error
    return make_json_error(DiskFull(str(error)))


def answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return make_error_response(request, NotFound("object", "unknown path: see /docs"))
    if error.status_code in READ_FAILURES and wants_html(request):
        return make_error_response(request, READ_FAILURES[error.status_code](error.detail))
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
