"""The endpoint: OpenAI's chat completions, completions and models, answered by an LLM with its cards."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from kcard import __version__
from kcard.errors import KcardError, LLMError, UnknownCard, UsageError
from kcard.hub.server.limits import BodyLimit
from kcard.serve.endpoints import chat, completions, health, models
from kcard.serve.errors import ApiError, Internal, LLMFailed, NoSuchModel, TimedOut, body
from kcard.serve.keys import Keys
from kcard.serve.metrics import Metrics
from kcard.serve.service import Service

__all__ = ["LARGEST", "create_app"]

LARGEST = 4 << 20  # bytes of a request; images travel in requests
IDLE = 60.0  # seconds
INTERNAL = "internal error: see the log of the endpoint"
logger = logging.getLogger("kcard.serve")


def create_app(
    service: Service, keys: Keys | None = None, largest: int = LARGEST, idle: float = IDLE
) -> FastAPI:
    """The ASGI application. `largest`: bytes of a request's body. `idle`: seconds without a byte after which a client
    that sends or reads slowly is given up."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(title="kcard", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.service, app.state.keys = service, keys or Keys(None)
    app.state.metrics = Metrics(lambda: service.waiting)
    for module in (chat, completions, models, health):
        app.include_router(module.router)
    for error in (ApiError, KcardError, TimeoutError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(error, refused)
    app.add_middleware(BodyLimit, largest, idle)
    return app


def refused(request: Request, error: Exception) -> Response:
    """The response for an error, in the shape that OpenAI's clients read."""
    found = as_api_error(error)
    request.app.state.metrics.failed(found.code or found.kind)
    headers = {} if found.retry_after is None else {"Retry-After": str(found.retry_after)}
    return JSONResponse(body(found), found.status, headers)


def as_api_error(error: Exception) -> ApiError:
    """The same error with the status, type and code of OpenAI's API."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        if first["type"] == "json_invalid":
            return ApiError("the body is not valid JSON")
        if not where:
            return ApiError("the body must be a JSON object; send it with Content-Type: application/json")
        return ApiError(f"{where}: {first['msg']}", where)
    if isinstance(error, HTTPException):
        found = ApiError(
            str(error.detail) if error.status_code != 404 else "unknown path: see GET /v1/models"
        )
        found.status = error.status_code
        return found
    if isinstance(error, UnknownCard):  # removed between the check of the name and the answer
        return NoSuchModel(str(error), "model")
    if isinstance(error, UsageError):
        return ApiError(str(error))
    if isinstance(error, TimeoutError):
        return TimedOut("the question took too long: try again, or ask a shorter one", retry_after=5)
    if isinstance(error, LLMError):
        logger.error("LLM: %s", error)
        return LLMFailed("the LLM behind this endpoint failed: see the log of the endpoint", retry_after=5)
    logger.error("internal error", exc_info=error)
    return Internal(INTERNAL)
