"""POST /v1/completions"""

import asyncio

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response, StreamingResponse

from kcard.serve.answers import completion, headers, sse
from kcard.serve.asking import Asking
from kcard.serve.errors import ApiError
from kcard.serve.schema import CompletionRequest

__all__ = ["router"]

router = APIRouter()


@router.post("/v1/completions")
async def completions(asked: CompletionRequest, asking: Asking) -> Response:
    """Each prompt is a question."""
    if any(not prompt.strip() for prompt in asked.prompts):
        raise ApiError("a prompt has no text", "prompt")
    route = await asking.service.route(asked.model)
    if asking.service.upstream is not None:
        raise ApiError("the LLM behind this endpoint takes conversations: POST /v1/chat/completions")
    answers = await asyncio.gather(*(asking.answer(route, prompt) for prompt in asked.prompts))
    found = completion(asked.model, answers)
    if not asked.stream:
        return JSONResponse(found, headers=headers(*answers))
    events = (sse(found), sse(None))
    return StreamingResponse(iter(events), media_type="text/event-stream", headers=headers(*answers))
