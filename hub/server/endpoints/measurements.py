"""What the hub measures itself."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse

from kcard.hub.repositories.jobs import Job
from kcard.hub.repositories.permissions import require_administrator
from kcard.hub.server.dependencies import HubDep, OptionalIdentity
from kcard.hub.server.reading.repository_json import Json, Responses, time

__all__ = ["router"]

router = APIRouter(tags=["trust"])

ADMINISTRATOR: Responses = {403: {"description": "The client does not administer the hub"}}


@router.get(
    "/api/kcard/jobs",
    summary="List the hub's measurements",
    response_description="Jobs, newest first",
    responses=ADMINISTRATOR,
)
def jobs(
    hub: HubDep,
    identity: OptionalIdentity,
    state: Annotated[
        Literal["waiting", "running", "done", "failed"] | None, Query(description="Only jobs in this state.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JSONResponse:
    """For administrators of the hub."""
    require_administrator(identity)
    return JSONResponse([_job(job) for job in hub.registry.jobs.list(state, limit)])


def _job(job: Job) -> Json:
    times = {key: _time(getattr(job, key)) for key in ("created", "due", "lease", "ended")}
    keys = ("number", "reference", "state", "attempts", "seed", "worker", "error")
    return {key: getattr(job, key) for key in keys} | times


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else time(moment)
