"""The ASGI application: routes, exception handlers and middleware."""

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from kcard import __version__
from kcard.errors import DiskFull, KcardError
from kcard.hub.refusals import Invalid, NotThere, TooLarge
from kcard.hub.server.endpoints import (
    access,
    accounts,
    audits,
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
)
from kcard.hub.server.errors import answer
from kcard.hub.server.forms import (
    account_page,
    ask,
    login,
    new_repository,
    organisations,
    profile,
    readme,
    repository_settings,
    requests,
    tokens,
    upload,
)
from kcard.hub.server.forms.administration import accounts as administered_accounts
from kcard.hub.server.forms.administration import log, quarantine, quotas
from kcard.hub.server.forms.ask import QuestionLimit
from kcard.hub.server.limits import BodyLimit, LoginLimit, RateLimit, take_turn
from kcard.hub.server.middleware.head import Head
from kcard.hub.server.middleware.instrumentation import Instrumentation, log_exchange
from kcard.hub.server.middleware.raw_path import RawPath, refuse_nul
from kcard.hub.server.middleware.security_headers import SecurityHeaders
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.page import compare, feed, files, home, openapi, pages
from kcard.hub.server.page.refusals import refused, wants_html
from kcard.hub.server.reading.recent import Recent
from kcard.hub.server.visitor import remember
from kcard.hub.shared import SharedHub
from kcard.hub.store.disk import is_full

__all__ = ["create_app"]

# Of a body that could not be read.
READ_FAILURES = {400: Invalid, 413: TooLarge}

ROUTERS = (
    health,
    metrics,
    accounts,
    validate,
    repos,
    audits,
    models,
    trees,
    refs,
    access,
    branches_tags,
    preupload,
    commit,
    lfs,
    large_files,
    resolve,
)
PAGES = (
    openapi,
    login,
    profile,
    tokens,
    organisations,
    new_repository,
    administered_accounts,
    quotas,
    quarantine,
    log,
    home,
    compare,
    ask,
    feed,
    files,
    pages,  # /{namespace}/{name} matches paths of those above
    requests,  # after pages: /datasets/{namespace}/settings is a dataset
    repository_settings,
    upload,
    readme,
    account_page,
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
    app.state.recent = Recent(hub)
    app.state.login_limit = LoginLimit(app.state.options.counts)
    app.state.question_limit = QuestionLimit(app.state.options.counts)
    for module in ROUTERS:
        app.include_router(module.router)
    for module in PAGES:
        app.include_router(module.router, dependencies=[Depends(remember)])
    openapi.describe(app)
    app.add_exception_handler(KcardError, _kcard_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(OSError, _full_disk)
    _add_middleware(app)
    return app


def _add_middleware(app: FastAPI) -> None:
    """From the innermost to the outermost."""
    options: ServerOptions = app.state.options
    app.state.metrics = metrics.Metrics(app.state.hub.database, options.metrics)
    app.add_middleware(Head)
    app.add_middleware(BodyLimit)
    if options.rate:
        # A hub with a public URL is behind a proxy, whose clients may seem to be on this machine.
        app.add_middleware(RateLimit, options.rate, options.counts, own=options.url is not None)
    app.add_middleware(SecurityHeaders, https=(options.url or "").startswith("https:"))
    app.add_middleware(Instrumentation, app.state.metrics.count, log_exchange)
    app.add_middleware(RawPath)


def _kcard_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, KcardError)
    return refused(request, error)


def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return refused(request, Invalid(f"{where}: {first['msg']}"))


def _full_disk(_request: Request, error: Exception) -> Response:
    """507, wherever a write fails since a disk is full."""
    if not isinstance(error, OSError) or not is_full(error):
        raise error
    return answer(DiskFull(str(error)))


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return refused(request, NotThere("object", "unknown path: see /docs"))
    if error.status_code in READ_FAILURES and wants_html(request):
        return refused(request, READ_FAILURES[error.status_code](error.detail))
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
