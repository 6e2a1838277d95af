"""The OpenAI-compatible endpoint: its routes and options, and the server."""

import asyncio
import functools
import itertools
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

from kcard.config import ENDPOINTS, GGUF_LLMS, settings, without_shortcut
from kcard.connections import silence
from kcard.errors import HubError, KcardError, LLMError, UnknownCard, UsageError, one_line
from kcard.events import OnEvent, ignore, note
from kcard.hub.server.limits import BodyLimit
from kcard.integrators.assembly import Endpoint, make_llm
from kcard.integrators.options import AskOptions
from kcard.io import parse_size
from kcard.llms.gguf_file import read_gguf
from kcard.llms.local_models import find_pulled
from kcard.llms.openai_endpoint import OpenAIEndpoint
from kcard.serve.answers import (
    STAGES,
    EndpointMetrics,
    Handler,
    ReportStage,
    RequestHandler,
    chat_chunks,
    chat_completion,
    completion,
    headers,
    key_holder,
    sse,
    stream_with_stages,
)
from kcard.serve.auth import HostCheck, Keys
from kcard.serve.options import EndpointOptions
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
    error_body,
)
from kcard.serve.service import PendingQuestion, Route, Service
from kcard.serve.upstream import (
    ForwardedChat,
    ForwardedCompletion,
    RequestForwarder,
    Upstream,
    has_question,
    last_question,
    standalone,
)
from kcard.version import __version__

if TYPE_CHECKING:
    from starlette.types import ASGIApp

router = APIRouter()
STREAM = "text/event-stream"
KEY = [Depends(key_holder)]  # of routes without a Handler, which checks the key too


@router.post("/v1/chat/completions")
async def chat_completions(chat: ChatRequest, handler: Handler, request: Request) -> Response:
    """Answer the last question of the conversation; for our page, with the stages of the work in the stream."""
    route = await handler.service.route(chat.model)
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
        events = map(sse, itertools.chain(chat_chunks(chat, served.answer), [None]))
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
    route = await handler.service.route(request.model)
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


STARTED = int(time.time())


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


@router.get("/v1/kcard", dependencies=KEY)
async def description(request: Request) -> dict[str, Any]:
    """Return what the page to ask shows before the first question."""
    service: Service = request.app.state.service
    return await service.describe()


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": STARTED, "owned_by": "kcard"}


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


LARGEST = 4 << 20  # bytes of a request; images travel in requests
IDLE = 60.0  # seconds
INTERNAL = "internal error: see the log of the endpoint"
logger = logging.getLogger("kcard.serve")


def create_app(
    service: Service,
    keys: Keys | None = None,
    largest: int = LARGEST,
    idle: float = IDLE,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
) -> FastAPI:
    """Make the ASGI application.

    largest  maximum size of a request's body, in bytes
    idle     seconds without a byte after which a slow client is disconnected
    hosts    further names of this endpoint, for requests without keys (HostCheck)
    origins  of pages elsewhere that may ask, such as https://example.org
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
    handled = (
        ApiError,
        KcardError,
        TimeoutError,
        RequestValidationError,
        ClientDisconnect,
        HTTPException,
        Exception,
    )
    for error in handled:
        app.add_exception_handler(error, error_response)
    app.add_middleware(BodyLimit, largest, idle)
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


# Serves the endpoint: one process that holds LLM and cards, and its parent, which starts it again if it dies.

CHEAP = ("embedded", *ENDPOINTS)  # LLMs that the parent makes too, so that a mistake is reported at once
OPENAI = "https://api.openai.com/v1"
PROBE_SECONDS = 3.0  # in which the LLM's server should answer at the start


def serve(
    asking: AskOptions,
    endpoint: EndpointOptions | None = None,
    ready: Callable[[str], None] = lambda _: None,
    on_event: OnEvent = ignore,
) -> None:
    """Serve until SIGTERM, or until Ctrl-C raises KeyboardInterrupt. A second signal aborts running requests.

    asking  options of asking; `mode` applies to questions to the LLM's own name, `llm` must be a name
    ready   called with the URL once the endpoint answers
    on_event  called with notes on private and gated cards, which are served only if `asking.cards` names them

    Raises UsageError for a wrong option or a malformed file of keys, UnknownCard for a card that is not there, HubError
    if the address is in use or the process can't start.
    """
    from kcard.hub.server.run import listening, run_workers

    endpoint = endpoint or EndpointOptions()
    llm = asking.llm if asking.llm is not None else settings().llm
    if not isinstance(llm, str):
        raise UsageError("the endpoint's process needs the LLM's name, such as openai:MODEL, not an object")
    parse_size(endpoint.largest)
    Keys(endpoint.keys)
    if message := check_llm(llm, asking):
        on_event(note(message))
    names = [endpoint.name or served_name(llm)]
    for spec in _listed(endpoint.also):
        if message := check_llm(spec, asking):
            on_event(note(message))
        names.append(served_name(spec))
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UsageError(
            f"two LLMs would be served as {min(repeated)!r}: leave one out of --also, or give --name"
        )
    for message in check_cards(asking.card_names):
        on_event(note(message))
    app = functools.partial(application, replace(asking, llm=llm), endpoint)
    with listening(endpoint.host, endpoint.port) as listener:
        received = run_workers(
            app,
            listener,
            ready,
            workers=1,
            log_format=endpoint.log_format,
            proxies=endpoint.proxies,
            grace=endpoint.grace,
        )
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    if not received:
        raise HubError("the endpoint stopped because its process failed to start: see the log above")


def check_llm(spec: str, asking: AskOptions) -> str:
    """Return why the LLM's server does not answer; empty if it does, or if the LLM runs in this process.

    Raises UsageError or ModelUnavailable for a mistake that can be found without loading the LLM.
    """
    backend, _, model = without_shortcut(spec)[0].partition(":")
    if backend in GGUF_LLMS:
        read_gguf(find_pulled(model).path if backend == "local" else Path(model).expanduser())
    if backend not in CHEAP:
        return ""
    llm = make_llm(spec, asking.temperature, Endpoint(asking.llm_url))
    if not isinstance(llm, OpenAIEndpoint):
        return ""
    url = llm.url or OPENAI
    reason = silence(url, PROBE_SECONDS)
    if not reason:
        return ""
    return f"no LLM answers at {url} ({reason}): start its server, or correct --llm-url; until then questions fail"


def check_cards(names: Sequence[str] | None) -> list[str]:
    """Return notes on the private and gated cards of the hub that are served because they are named, or are not served.

    Raises UnknownCard for a name that the hub does not have, and HubError if all of the named cards are excluded.
    """
    from kcard.hub.registry import Hub

    hub = Hub()
    try:
        selection = hub.select(names, public=True, drafts=True)
    except HubError:
        if names is not None:
            raise
        return []
    finally:
        hub.database.close()
    restricted = [f"{v.reference} ({v.restriction})" for v in selection.versions if v.restriction]
    notes = []
    if restricted:
        notes.append(
            f"everybody who may ask gets answers from {', '.join(restricted)}, since --cards names them"
        )
    if selection.hidden:
        count = f"{len(selection.hidden)} card{'' if len(selection.hidden) == 1 else 's'}"
        notes.append(f"{count} left out as private or gated: name a card with --cards to answer from it")
    return notes


def application(asking: AskOptions, endpoint: EndpointOptions) -> "ASGIApp":
    """Make the application in its own process, which ends when its parent does.

    If that is impossible, the process ends with a status that tells its parent not to start it again.
    """
    from uvicorn.config import STARTUP_FAILURE

    from kcard.hub.registry import Hub
    from kcard.hub.server.run import follow_parent
    from kcard.serve.service import Pipelines

    follow_parent()
    try:
        keys = Keys(endpoint.keys)
        others = {served_name(spec): spec for spec in _listed(endpoint.also)}
        pipelines = Pipelines(asking, Hub(), endpoint.name or served_name(str(asking.llm)), others)
    except KcardError as error:
        logger.error("%s", one_line(error))
        raise SystemExit(STARTUP_FAILURE) from None
    # A chat model behind a server of its own takes whole conversations.
    upstreams = {
        name: Upstream(llm.url or OPENAI, llm.model, llm.key, llm.timeout)
        for name, llm in pipelines.models.items()
        if isinstance(llm, OpenAIEndpoint) and llm.is_chat
    }
    service = Service(
        pipelines, asking.mode, None, endpoint.waiting, endpoint.timeout, endpoint.cache, upstreams
    )
    own_name = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    hosts = [own_name, *_listed(endpoint.allowed_hosts)]
    origins = _listed(endpoint.allowed_origins)
    return create_app(service, keys, parse_size(endpoint.largest), hosts=hosts, origins=origins)


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def served_name(llm: str) -> str:
    """Return the name of an LLM without its backend: "gpt-4o" for "openai:gpt-4o"; of a file, its own name."""
    backend, _, model = llm.partition(":")
    return Path(model).stem if backend == "gguf" else model or backend
