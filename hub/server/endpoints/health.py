"""Health checks: liveness and readiness."""

import logging
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import text
from starlette.responses import JSONResponse

from kcard.errors import KcardError
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.reading.repository_json import Responses
from kcard.hub.shared import SharedHub

__all__ = ["router"]

# The sha256 of an empty file, to look up in the store.
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
UNAVAILABLE: Responses = {503: {"description": "The database or the store is unavailable"}}

logger = logging.getLogger("kcard.hub.server")
router = APIRouter(tags=["operation"])


@router.get("/healthz", summary="Check liveness", responses=UNAVAILABLE)
def health(
    hub: HubDep,
    deep: Annotated[bool, Query(description="Also check the database and the store.")] = False,
) -> JSONResponse:
    """200 while a worker answers."""
    return ready(hub) if deep else JSONResponse({"status": "ok"})


@router.get("/readyz", summary="Check readiness", responses=UNAVAILABLE)
def ready(hub: HubDep) -> JSONResponse:
    """200 if the database and the store answer, else 503, with the reason in the log."""
    found = {"database": _check(hub, "database"), "blobs": _check(hub, "blobs")}
    ok = all(found.values())
    words = {name: "ok" if works else "failed" for name, works in {"status": ok, **found}.items()}
    return JSONResponse(words, 200 if ok else 503)


def _check(hub: SharedHub, what: str) -> bool:
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
