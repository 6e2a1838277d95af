"""Validation of a README's metadata, which clients request before uploading."""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from kcard.hub.checks import metadata
from kcard.hub.refusals import Invalid, Refused
from kcard.hub.server.limits import InTurn, lift

__all__ = ["router"]

router = APIRouter(tags=["write"])

LARGEST = 5_000_000  # bytes of JSON with a README, which has at most 4 MB
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The text of a README.md.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["content"],
                    "properties": {"content": {"type": "string"}},
                }
            }
        },
    }
}


async def _readme(request: Request) -> str:
    """The text of the README. Parsed in a thread, since a large body takes long."""
    lift(request, LARGEST)
    return await run_in_threadpool(_content, await request.body())


def _content(body: bytes) -> str:
    try:
        match json.loads(body):
            case {"content": str(content)}:
                return content
    except (ValueError, RecursionError):
        pass
    raise Invalid('invalid body: send the README as JSON, {"content": "…"}')


@router.post(
    "/api/validate-yaml",
    summary="Check the metadata of a README.md",
    response_description="Valid; warnings",
    responses={400: {"description": "Errors"}},
    openapi_extra=BODY,
)
def validate(readme: Annotated[str, Depends(_readme)], _turn: InTurn) -> JSONResponse:
    """Clients read errors and warnings from the body, whatever the status."""
    try:
        card, _ = metadata.read(readme)
    except Refused as error:
        return JSONResponse({"errors": [{"message": str(error)}], "warnings": []}, 400)
    missing = [] if card else [{"message": "README.md has no metadata: it can't be found by tags"}]
    return JSONResponse({"errors": [], "warnings": missing})
