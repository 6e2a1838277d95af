"""Health checks: liveness and readiness."""

import logging
import shutil
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
UNAVAILABLE: Responses = {
    503: {"description": "The database or the store is unavailable, or the disk is full"}
}
MB = 1_000_000
LEAST_FREE = 100 * MB

logger = logging.getLogger("kcard.hub.server")
router = APIRouter(tags=["operation"])


@router.get("/healthz", summary="Check liveness", responses=UNAVAILABLE)
def health(
    hub: HubDep,
    deep: Annotated[bool, Query(description="Also check the database, the store and the disk.")] = False,
) -> JSONResponse:
    """200 while a worker answers."""
    return ready(hub) if deep else JSONResponse({"status": "ok"})


@router.get("/readyz", summary="Check readiness", responses=UNAVAILABLE)
def ready(hub: HubDep) -> JSONResponse:
    """200 if the database and the store answer and the disk has room, else 503. The log has the reason of a failure."""
    found = {"database": _check(hub, "database"), "blobs": _check(hub, "blobs"), "disk": _disk(hub)}
    ok = all(state == "ok" for state in found.values())
    return JSONResponse({"status": "ok" if ok else "failed", **found}, 200 if ok else 503)


def _disk(hub: SharedHub) -> str:
    """Whether the disk of the hub's folder, which all uploads pass through, has room."""
    free = shutil.disk_usage(hub.registry.home / "hub").free
    return "ok" if free >= LEAST_FREE else f"{free // MB} MB free: at least {LEAST_FREE // MB} MB are needed"


def _check(hub: SharedHub, what: str) -> str:
    try:
        if what == "database":
            with hub.database.read() as connection:
                connection.execute(text("SELECT 1"))
        else:
            hub.blobs.holds(EMPTY)
    except (KcardError, OSError) as error:
        logger.error("%s failed: %s", what, error)
        return "failed"
    return "ok"
