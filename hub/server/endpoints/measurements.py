"""What the hub measures itself, and appeals against the quarantine that follows."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from kcard.errors import UnknownCard
from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Invalid, NotThere
from kcard.hub.repositories.appeals import Appeal
from kcard.hub.repositories.jobs import Job
from kcard.hub.repositories.permissions import require_administrator
from kcard.hub.repositories.values import Repository
from kcard.hub.server.dependencies import AdministeredRepository, HubDep, OptionalIdentity, RequiredIdentity
from kcard.hub.server.reading.repository_json import Json, Responses, time
from kcard.hub.shared import SharedHub

__all__ = ["make_appeal", "router"]

router = APIRouter(tags=["trust"])

NO_NUL = r"\A[^\x00]*\z"  # PostgreSQL can't store NUL
LARGEST_NUMBER = 2**31 - 1
ADMINISTRATOR: Responses = {403: {"description": "The client does not administer the hub"}}
APPEALS = "/api/{types}/{namespace}/{name}/appeals"


class Objection(BaseModel):
    """Why the audit is wrong, and the number of the version, by default the newest."""

    note: str = Field(max_length=2000, pattern=NO_NUL)
    version: int | None = Field(default=None, ge=1, le=LARGEST_NUMBER)


class Decision(BaseModel):
    """release: the version is no longer quarantined; keep: it is."""

    answer: Literal["release", "keep"]
    note: str = Field(default="", max_length=2000, pattern=NO_NUL)


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


@router.get(
    "/api/kcard/appeals",
    summary="List appeals against quarantine",
    response_description="Appeals, newest first",
    responses=ADMINISTRATOR,
)
def appeals(
    hub: HubDep,
    identity: OptionalIdentity,
    undecided: Annotated[bool, Query(alias="open", description="Only appeals without a decision.")] = False,
) -> JSONResponse:
    """For administrators of the hub."""
    require_administrator(identity)
    return JSONResponse([_appeal(each) for each in hub.registry.appeals.list(undecided=undecided or None)])


@router.post(
    "/api/kcard/appeals/{number}",
    summary="Decide an appeal",
    response_description="The appeal",
    responses={
        **ADMINISTRATOR,
        404: {"description": "No such appeal"},
        409: {"description": "It was decided already"},
    },
)
def decide(
    hub: HubDep,
    identity: RequiredIdentity,
    number: Annotated[int, Path(ge=1, le=LARGEST_NUMBER, description="Number of the appeal.")],
    decision: Decision,
) -> JSONResponse:
    """For administrators of the hub."""
    require_administrator(identity)
    decided = hub.registry.appeals.decide(number, decision.answer, decision.note, by=identity.name)
    return JSONResponse(_appeal(decided))


@router.post(
    APPEALS,
    summary="Appeal against the quarantine of a version",
    responses={
        200: {"description": "The appeal"},
        400: {"description": "No audit quarantines the version"},
        409: {"description": "There is an appeal against that audit already"},
    },
)
def appeal(
    hub: HubDep, repository: AdministeredRepository, identity: RequiredIdentity, objection: Objection
) -> JSONResponse:
    """The card is audited again, with another seed, and an administrator of the hub decides. Once for each audit."""
    return JSONResponse(_appeal(make_appeal(hub, repository, objection.version, objection.note, identity)))


@router.get(
    APPEALS,
    summary="List the appeals of a repository",
    response_description="Appeals, newest first",
    responses={403: {"description": "The client does not administer the repository"}},
)
def own_appeals(hub: HubDep, repository: AdministeredRepository) -> JSONResponse:
    """For administrators of the repository."""
    found = hub.registry.appeals.list(repository=repository.id)
    return JSONResponse([_appeal(each) for each in found])


def make_appeal(
    hub: SharedHub, repository: Repository, version: int | None, note: str, identity: Identity
) -> Appeal:
    """Appeal against the quarantine of a version, by default the newest, as an administrator of the repository.

    Raises NotThere for an unknown version, Invalid and Conflict as Appeals.make.
    """
    if repository.type != "model":
        raise Invalid("only cards are quarantined")
    suffix = "" if version is None else f"@v{version}"
    try:
        found = hub.registry.get(f"{repository.name}{suffix}")
    except UnknownCard:
        raise NotThere("object", f"{repository.name} has not published such a version") from None
    return hub.registry.appeals.make(found, note, by=identity.name)


def _job(job: Job) -> Json:
    times = {key: _time(getattr(job, key)) for key in ("created", "due", "lease", "ended")}
    keys = ("number", "reference", "state", "attempts", "seed", "appeal", "worker", "error")
    return {key: getattr(job, key) for key in keys} | times


def _appeal(appeal: Appeal) -> Json:
    keys = ("number", "reference", "audit", "factuality", "evidence", "note", "author", "decision")
    more = {"decidedBy": appeal.decided_by, "decisionNote": appeal.decision_note}
    second = {"secondAudit": appeal.second, "secondFactuality": appeal.second_factuality}
    times = {"at": time(appeal.at), "decidedAt": _time(appeal.decided_at)}
    return {key: getattr(appeal, key) for key in keys} | second | more | times


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else time(moment)
