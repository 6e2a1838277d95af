"""POST /v1/completions"""

import asyncio

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response, StreamingResponse

from kcard.serve.answers import completion, headers, sse
from kcard.serve.asking import Asking
from kcard.serve.errors import ApiError
from kcard.serve.forwarded import ForwardedCompletion
from kcard.serve.forwarding import Forwarding
from kcard.serve.schema import CompletionRequest

__all__ = ["router"]

router = APIRouter()
STREAM = "text/event-stream"


@router.post("/v1/completions")
async def completions(asked: CompletionRequest, asking: Asking) -> Response:
    """Each prompt is a question."""
    if any(not prompt.strip() for prompt in asked.prompts):
        raise ApiError("a prompt has no text", "prompt")
    route = await asking.service.route(asked.model)
    upstream = asking.service.upstream
    if upstream is not None:
        pendings = await asking.prepare(route, asked.prompts)
        forwarding = Forwarding(asking, upstream, ForwardedCompletion(asked), route, pendings)
        return await forwarding.response()
    answered = await asyncio.gather(*(asking.answer(route, prompt) for prompt in asked.prompts))
    found = completion(asked.model, [one.answer for one in answered])
    if not asked.stream:
        return JSONResponse(found, headers=headers(*answered))
    return StreamingResponse(iter((sse(found), sse(None))), media_type=STREAM, headers=headers(*answered))
