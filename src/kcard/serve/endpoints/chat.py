"""POST /v1/chat/completions"""

from collections.abc import Iterator

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response, StreamingResponse

from kcard.answer import Answer
from kcard.serve.answers import chat_chunks, chat_completion, headers, sse
from kcard.serve.asking import Ask, Asking
from kcard.serve.conversation import has_question, last_question, standalone
from kcard.serve.errors import ApiError
from kcard.serve.forwarded import ForwardedChat
from kcard.serve.forwarding import Forwarding
from kcard.serve.pending import Pending
from kcard.serve.routes import Route
from kcard.serve.schema import ChatRequest
from kcard.serve.upstream import Upstream

__all__ = ["router"]

router = APIRouter()
STREAM = "text/event-stream"


@router.post("/v1/chat/completions")
async def chat_completions(asked: ChatRequest, asking: Asking) -> Response:
    """The answer to the last question of the conversation."""
    route = await asking.service.route(asked.model)
    upstream = asking.service.upstream
    if upstream is None:
        if asked.needs_passing_through:
            raise ApiError("the LLM behind this endpoint takes text only: no tools, no images", "messages")
        found = await asking.answer(route, last_question(asked.messages))
        if not asked.stream:
            return JSONResponse(chat_completion(asked.model, found.answer), headers=headers(found))
        return StreamingResponse(_events(asked, found.answer), media_type=STREAM, headers=headers(found))
    pendings = await _pendings(asked, asking, route, upstream)
    return await Forwarding(asking, upstream, ForwardedChat(asked), route, pendings).response()


async def _pendings(asked: ChatRequest, asking: Ask, route: Route, upstream: Upstream) -> list[Pending]:
    """The question that the conversation ends with, prepared; none where its last turn is no text."""
    if not has_question(asked.messages):
        return []
    question = last_question(asked.messages)
    if route.mode != "direct":
        question = await asking.while_connected(standalone(asked.messages, upstream))
    return await asking.prepare(route, [question])


def _events(asked: ChatRequest, answer: Answer) -> Iterator[bytes]:
    yield from map(sse, chat_chunks(asked.model, answer, include_usage=asked.include_usage))
    yield sse(None)
