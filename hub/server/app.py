"""The ASGI application: routes, exception handlers and middleware."""

import asyncio

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from kcard import __version__
from kcard.errors import KcardError
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
from kcard.hub.server.forms.login_limit import LoginLimit
from kcard.hub.server.middleware.body_limit import BodyLimit
from kcard.hub.server.middleware.full_disk import FullDisk
from kcard.hub.server.middleware.head import Head
from kcard.hub.server.middleware.idle_timeout import IdleTimeout
from kcard.hub.server.middleware.instrumentation import Instrumentation, log_exchange
from kcard.hub.server.middleware.rate_limit import RateLimit
from kcard.hub.server.middleware.raw_path import RawPath, refuse_nul
from kcard.hub.server.middleware.security_headers import SecurityHeaders
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.page import compare, feed, files, home, openapi, pages
from kcard.hub.server.page.refusals import refused, wants_html
from kcard.hub.server.reading.recent import Recent
from kcard.hub.server.turns import AT_ONCE
from kcard.hub.server.visitor import remember
from kcard.hub.server.writing.account_turns import AccountTurns
from kcard.hub.server.writing.write_threads import take_turn
from kcard.hub.shared import SharedHub

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
    app.state.turns = asyncio.Semaphore(AT_ONCE)
    app.state.login_limit = LoginLimit(app.state.options.counts)
    app.state.question_limit = QuestionLimit(app.state.options.counts)
    app.state.account_turns = AccountTurns()
    for module in ROUTERS:
        app.include_router(module.router)
    for module in PAGES:
        app.include_router(module.router, dependencies=[Depends(remember)])
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


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return refused(request, NotThere("object", "unknown path: see /docs"))
    if error.status_code in READ_FAILURES and wants_html(request):
        return refused(request, READ_FAILURES[error.status_code](error.detail))
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
