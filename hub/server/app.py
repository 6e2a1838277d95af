"""The ASGI application: routes, exception handlers and middleware."""

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from kcard import __version__
from kcard.errors import KcardError
from kcard.hub.refusals import Invalid, NotThere
from kcard.hub.server.endpoints import (
    access,
    accounts,
    branches_tags,
    commit,
    health,
    large_files,
    lfs,
    metrics,
    models,
    preupload,
    refs,
    repos,
    resolve,
    trees,
    validate,
    xet,
)
from kcard.hub.server.errors import answer
from kcard.hub.server.middleware.body_limit import BodyLimit
from kcard.hub.server.middleware.full_disk import FullDisk
from kcard.hub.server.middleware.head import Head
from kcard.hub.server.middleware.idle_timeout import IdleTimeout
from kcard.hub.server.middleware.instrumentation import Instrumentation, log_exchange
from kcard.hub.server.middleware.rate_limit import RateLimit
from kcard.hub.server.middleware.raw_path import RawPath, refuse_nul
from kcard.hub.server.middleware.security_headers import SecurityHeaders
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.page import openapi, pages
from kcard.hub.server.writing.turns import take_turn
from kcard.hub.shared import SharedHub

__all__ = ["create_app"]

ROUTERS = (
    health,
    metrics,
    accounts,
    validate,
    repos,
    models,
    trees,
    refs,
    access,
    branches_tags,
    preupload,
    commit,
    xet,
    lfs,
    large_files,
    resolve,
    openapi,
    pages,  # last: /{namespace}/{name} matches paths of others
)


def create_app(hub: SharedHub, options: ServerOptions | None = None) -> FastAPI:
    """The ASGI application of a shared hub."""
    app = FastAPI(
        title="kcard hub",
        version=__version__,
        description="Knowledge cards with the Hugging Face Hub's protocol.",
        redirect_slashes=False,
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        dependencies=[Depends(refuse_nul), Depends(take_turn)],
    )
    app.state.hub = hub
    app.state.options = options or ServerOptions()
    for module in ROUTERS:
        app.include_router(module.router)
    openapi.describe(app)
    app.add_exception_handler(KcardError, _kcard_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    _add_middleware(app)
    return app


def _add_middleware(app: FastAPI) -> None:
    """From the innermost to the outermost."""
    options: ServerOptions = app.state.options
    app.state.metrics = metrics.Metrics(app.state.hub.database, options.metrics)
    app.add_middleware(FullDisk)
    app.add_middleware(Head)
    app.add_middleware(BodyLimit)
    app.add_middleware(IdleTimeout)
    if options.rate:
        app.add_middleware(RateLimit, options.rate)
    app.add_middleware(SecurityHeaders, https=(options.url or "").startswith("https:"))
    app.add_middleware(Instrumentation, app.state.metrics.count, log_exchange)
    app.add_middleware(RawPath)


def _kcard_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, KcardError)
    return answer(error)


def _validation_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return answer(Invalid(f"{where}: {first['msg']}"))


def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return answer(NotThere("object", "unknown path: see /docs"))
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
