"""The check of a README's metadata, which clients ask for before they upload it."""

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
    responses={200: {"description": "Nothing is wrong; warnings"}, 400: {"description": "What is wrong"}},
)
def validate(readme: Readme) -> JSONResponse:
    """Clients read errors and warnings out of the body, whatever the status."""
    try:
        card, _ = metadata.read(readme.content)
    except Refused as error:
        return JSONResponse({"errors": [{"message": str(error)}], "warnings": []}, 400)
    missing = [] if card else [{"message": "the README.md has no metadata: nothing will find it by tags"}]
    return JSONResponse({"errors": [], "warnings": missing})
