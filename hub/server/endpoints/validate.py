"""Validation of a README's metadata, which clients request before uploading."""

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import JSONResponse

from kcard.hub.checks import metadata
from kcard.hub.refusals import Refused

__all__ = ["router"]

router = APIRouter(tags=["write"])


class Readme(BaseModel):
    """The text of a README.md."""

    content: str


@router.post(
    "/api/validate-yaml",
    summary="Check the metadata of a README.md",
    response_description="Valid; warnings",
    responses={400: {"description": "Errors"}},
)
def validate(readme: Readme) -> JSONResponse:
    """Clients read errors and warnings from the body, whatever the status."""
    try:
        card, _ = metadata.read(readme.content)
    except Refused as error:
        return JSONResponse({"errors": [{"message": str(error)}], "warnings": []}, 400)
    missing = [] if card else [{"message": "README.md has no metadata: it can't be found by tags"}]
    return JSONResponse({"errors": [], "warnings": missing})
