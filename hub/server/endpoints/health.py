"""Whether the server lives, and whether it can do its work."""

import logging
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import text
from starlette.responses import JSONResponse

from kcard.errors import KcardError
from kcard.hub.server.asking import TheHub
from kcard.hub.shared import SharedHub

__all__ = ["router"]

# The sha256 of no bytes: any store can be asked for it.
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
SICK: dict[int | str, dict[str, Any]] = {
    503: {"description": "The database or the store of files can't be reached."}
}

logger = logging.getLogger("kcard.hub.server")
router = APIRouter(tags=["operation"])


@router.get("/healthz", summary="Whether the server lives", responses=SICK)
def health(
    hub: TheHub,
    deep: Annotated[bool, Query(description="Look at the database and the store of files too.")] = False,
) -> JSONResponse:
    """200 as long as a worker answers."""
    return ready(hub) if deep else JSONResponse({"status": "ok"})


@router.get("/readyz", summary="Whether the server can do its work", responses=SICK)
def ready(hub: TheHub) -> JSONResponse:
    """200 where the database and the store of files answer, else 503; the log says why."""
    found = {"database": _answers(hub, "database"), "blobs": _answers(hub, "blobs")}
    well = all(found.values())
    words = {name: "ok" if answers else "failed" for name, answers in found.items()}
    return JSONResponse({"status": "ok" if well else "failed", **words}, 200 if well else 503)


def _answers(hub: SharedHub, what: str) -> bool:
    try:
        if what == "database":
            with hub.database.read() as connection:
                connection.execute(text("SELECT 1"))
        else:
            hub.blobs.holds(EMPTY)
    except (KcardError, OSError) as error:
        logger.error("%s failed: %s", what, error)
        return False
    return True
