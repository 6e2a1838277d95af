"""The OpenAI-compatible endpoint: its routes, its page, and its errors."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

from kcard.errors import KcardError, LLMError, UnknownCard, UsageError
from kcard.hub.server.limits import IDLE_SECONDS, BodyLimit, lift_body_limit
from kcard.serve.answers import (
    STAGES,
    EndpointMetrics,
    Handler,
    ReportStage,
    RequestHandler,
    Uploader,
    chat_chunks,
    chat_completion,
    completion,
    headers,
    key_holder,
    sse,
    stream_with_stages,
)
from kcard.serve.auth import HostCheck, Keys
from kcard.serve.forwarding import (
    ForwardedChat,
    ForwardedCompletion,
    RequestForwarder,
    has_question,
    last_question,
    standalone,
)
from kcard.serve.pipelines import PendingQuestion, Route
from kcard.serve.schema import (
    ApiError,
    ChatRequest,
    CompletionRequest,
    Disconnected,
    Internal,
    LLMFailed,
    NoSuchModel,
    NotServed,
    TimedOut,
    UploadRefused,
    error_body,
)
from kcard.serve.service import Service
from kcard.serve.uploads import MAX_UPLOAD_BYTES
from kcard.version import __version__

router = APIRouter()
STREAM = "text/event-stream"
KEY = [Depends(key_holder)]  # of routes without a Handler, which checks the key too


@router.post("/v1/chat/completions")
async def chat_completions(chat: ChatRequest, handler: Handler, request: Request) -> Response:
    """Answer the last question of the conversation; for our page, with the stages of the work in the stream."""
    route = await handler.route(chat.model)
    if not (chat.stream and STAGES in request.headers):
        return await _answer_chat(chat, handler, route, lambda _: None)

    def error_event(error: Exception) -> bytes:
        return sse(error_body(_counted_error(request, error)))

    events = stream_with_stages(lambda report: _answer_chat(chat, handler, route, report), error_event)
    return StreamingResponse(events, media_type=STREAM)


async def _answer_chat(
    chat: ChatRequest, handler: RequestHandler, route: Route, report: ReportStage
) -> Response:
    upstream = handler.service.upstream(route)
    cards = await handler.service.count_cards(route)
    if upstream is None:
        if chat.needs_passing_through:
            raise ApiError("the LLM behind this endpoint takes text only: no tools, no images", "messages")
        chat.check_possible(handler.service.temperature(route))
        report({"name": "searching", "cards": cards} if cards else {"name": "reading"})
        served = await handler.answer(route, last_question(chat.messages))
        if not chat.stream:
            return JSONResponse(chat_completion(chat, served.answer), headers=headers(served))
        events = map(
            sse, itertools.chain(chat_chunks(chat, served.answer, warns=not handler.is_of_page), [None])
        )
        return StreamingResponse(events, media_type=STREAM, headers=headers(served))

    # The LLM's server gets the conversation, with knowledge for its last question; none where that has no text.
    pending: list[PendingQuestion] = []
    if has_question(chat.messages):
        question = last_question(chat.messages)
        if route.mode != "direct":
            if len(chat.messages) > 1:
                report({"name": "rewriting"})
            question = await handler.while_connected(standalone(chat.messages, upstream))
        if cards:
            report({"name": "searching", "cards": cards, "question": question})
        pending = await handler.prepare(route, [question])
    report({"name": "reading"})
    return await RequestForwarder(handler, upstream, ForwardedChat(chat), route, pending, report).response()


@router.post("/v1/completions")
async def completions(request: CompletionRequest, handler: Handler) -> Response:
    """Answer each prompt as a question."""
    if any(not prompt.strip() for prompt in request.prompts):
        raise ApiError("a prompt has no text", "prompt")
    route = await handler.route(request.model)
    upstream = handler.service.upstream(route)
    if upstream is not None:
        pending = await handler.prepare(route, request.prompts)
        forwarder = RequestForwarder(handler, upstream, ForwardedCompletion(request), route, pending)
        return await forwarder.response()
    request.check_possible(handler.service.temperature(route))
    served = await asyncio.gather(*(handler.answer(route, prompt) for prompt in request.prompts))
    content = completion(request, [one.answer for one in served])
    if not request.stream:
        return JSONResponse(content, headers=headers(*served))
    return StreamingResponse(iter((sse(content), sse(None))), media_type=STREAM, headers=headers(*served))


@router.api_route("/v1/embeddings", methods=["GET", "POST"], dependencies=KEY)
async def embeddings() -> None:
    """Say that there are none."""
    raise NotServed(
        "this endpoint answers questions and has no embeddings: ask the server of an encoder for them"
    )


@router.get("/healthz")
async def healthz() -> Response:
    return PlainTextResponse("ok\n")


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return the counters for Prometheus."""
    content, kind = request.app.state.metrics.exposed()
    return Response(content, media_type=kind)


START_SECONDS = int(time.time())


@router.get("/v1/models", dependencies=KEY)
async def models(request: Request) -> dict[str, Any]:
    """List the LLM, the LLM with each mode, and the LLM with each card."""
    service: Service = request.app.state.service
    return {"object": "list", "data": [_model(name) for name in await service.models()]}


@router.get("/v1/models/{name:path}", dependencies=KEY)
async def model(request: Request, name: str) -> dict[str, Any]:
    service: Service = request.app.state.service
    if name not in await service.models():
        raise NoSuchModel(f"the model {name!r} does not exist: GET /v1/models lists those that do", "model")
    return _model(name)


@router.get("/v1/kcard")
async def description(request: Request, uploader: Uploader) -> dict[str, Any]:
    """Return what the page to ask shows before the first question."""
    service: Service = request.app.state.service
    return await service.describe(uploader)


# Pages elsewhere can't upload: a browser lets them send this header only if CORS allows it, which create_app does not.
FILE_NAME = "X-Kcard-File"


@router.post("/v1/kcard/files")
async def upload(request: Request, uploader: Uploader) -> dict[str, Any]:
    """Index the file in the body, whose name is in a header, percent-encoded, so that it can be asked."""
    service: Service = request.app.state.service
    if service.uploads is None or uploader is None:
        raise UploadRefused(
            "this endpoint takes no files: start it on your own computer without --keys, or with --keys and --uploads"
        )
    name = request.headers.get(FILE_NAME)
    if name is None:
        raise ApiError(f"send the file's name, percent-encoded, in the header {FILE_NAME}", FILE_NAME)
    lift_body_limit(request, MAX_UPLOAD_BYTES)
    uploaded = await service.uploads.add(uploader, unquote(name), request.stream())
    return uploaded.to_json()


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": START_SECONDS, "owned_by": "kcard"}


# A page to ask, a conversation with the routes above. Its files are static, so they need no key.

PAGE = Path(__file__).parent / "page"
FILES = ("chat.css", "chat.js", "answer.js", "markdown.js", "formula.js")
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
PAGE_HEADERS = {
    # Nothing is loaded from elsewhere, and the page can't be framed.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # a link to a question contains it
    "Cache-Control": "no-cache",
}


async def page(request: Request) -> Response:
    """Return the page or one of its files."""
    file = PAGE / (request.url.path.rpartition("/")[2] or "chat.html")
    return FileResponse(file, media_type=f"{TYPES[file.suffix]}; charset=utf-8", headers=PAGE_HEADERS)


for name in ("", *FILES):
    router.add_api_route(f"/{name}", page, include_in_schema=False)


MAX_BODY_BYTES = 4 << 20  # images travel in requests
INTERNAL = "internal error: see the log of the endpoint"
HANDLED_ERRORS = (
    *(ApiError, KcardError, TimeoutError, RequestValidationError, ClientDisconnect, HTTPException),
    Exception,
)
logger = logging.getLogger("kcard.serve")


def create_app(
    service: Service,
    keys: Keys | None = None,
    max_body: int = MAX_BODY_BYTES,
    idle: float = IDLE_SECONDS,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
) -> FastAPI:
    """Make the ASGI application.

    max_body  maximum size of a request's body, in bytes
    idle      seconds without a byte after which a slow client is disconnected
    hosts     further names of this endpoint, for requests without keys (HostCheck)
    origins   of pages elsewhere that may ask, such as https://example.org
    """
    keys = keys or Keys(None)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await service.close()

    app = FastAPI(title="kcard", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.service, app.state.keys = service, keys
    app.state.metrics = EndpointMetrics(lambda: service.waiting)
    app.include_router(router)
    for error in HANDLED_ERRORS:
        app.add_exception_handler(error, error_response)
    app.add_middleware(BodyLimit, max_body, idle)
    if not keys.is_needed:
        app.add_middleware(HostCheck, hosts)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=[*origins],
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["X-Kcard-Cards", "X-Kcard-Gate", "X-Kcard-Cache"],
        )
    return app


def error_response(request: Request, error: Exception) -> Response:
    """Return the response for an error, in the format that OpenAI's clients read."""
    api_error = _counted_error(request, error)
    headers = {} if api_error.retry_after is None else {"Retry-After": str(api_error.retry_after)}
    return JSONResponse(error_body(api_error), api_error.status, headers)


def _counted_error(request: Request, error: Exception) -> ApiError:
    """Return an error as OpenAI's API has it, and count it."""
    api_error = as_api_error(error)
    if isinstance(api_error, Disconnected):
        logger.info("%s: %s", request.url.path, api_error)
    request.app.state.metrics.failed(api_error.code or api_error.kind)
    return api_error


def as_api_error(error: Exception) -> ApiError:
    """Return an error with the status, type and code of OpenAI's API."""
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
    if isinstance(error, ClientDisconnect):
        return Disconnected("the client disconnected before the end of its request")
    if isinstance(error, HTTPException):
        message = str(error.detail) if error.status_code != 404 else "unknown path: see GET /v1/models"
        api_error = ApiError(message)
        api_error.status = error.status_code
        return api_error
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
