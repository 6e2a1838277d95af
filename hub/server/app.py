"""The application: which answers there are, and what every request passes on its way to one."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from kcard import __version__
from kcard.errors import KcardError
from kcard.hub.refusals import Invalid, NotThere
from kcard.hub.server.endpoints import (
    access,
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
    storage,
    trees,
    validate,
    whoami,
    xet,
)
from kcard.hub.server.errors import answer
from kcard.hub.server.middleware.body_limit import BodyLimit
from kcard.hub.server.middleware.observed import Observed, write
from kcard.hub.server.middleware.patience import Patience
from kcard.hub.server.middleware.rate_limit import RateLimit
from kcard.hub.server.middleware.raw_path import RawPath
from kcard.hub.server.middleware.security_headers import SecurityHeaders
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.page import description, pages
from kcard.hub.shared import SharedHub

__all__ = ["create_app"]

PARTS = (
    health,
    metrics,
    whoami,
    validate,
    repos,
    storage,
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
    description,
    pages,  # last: /{namespace}/{name} would match what others answer
)


def create_app(hub: SharedHub, options: ServerOptions | None = None) -> FastAPI:
    """The ASGI application of a shared hub."""
    app = FastAPI(
        title="kcard hub",
        version=__version__,
        description="Knowledge cards by the Hugging Face Hub's protocol.",
        redirect_slashes=False,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.hub = hub
    app.state.options = options or ServerOptions()
    for part in PARTS:
        app.include_router(part.router)
    description.describe(app)
    app.add_exception_handler(KcardError, _refused)
    app.add_exception_handler(RequestValidationError, _misunderstood)
    app.add_exception_handler(HTTPException, _unanswered)
    _surround(app)
    return app


def _surround(app: FastAPI) -> None:
    """What every request passes, from the inside out."""
    options: ServerOptions = app.state.options
    app.state.metrics = metrics.Metrics(app.state.hub.database, options.metrics)
    app.add_middleware(BodyLimit)
    app.add_middleware(Patience)
    if options.rate:
        app.add_middleware(RateLimit, options.rate)
    app.add_middleware(SecurityHeaders, https=(options.url or "").startswith("https:"))
    app.add_middleware(Observed, app.state.metrics.count, write)
    app.add_middleware(RawPath)


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, KcardError)
    return answer(error)


def _misunderstood(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return answer(Invalid(f"{where}: {first['msg']}"))


def _unanswered(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return answer(NotThere("object", "nothing answers here"))
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
