"""Verified results: operators measure published versions with `kcard audit --unverified`, and post what they found."""

from dataclasses import fields
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import JSONResponse

from kcard.errors import UnknownCard
from kcard.hub.refusals import Invalid, NotThere
from kcard.hub.repositories.audits import AuditFinding
from kcard.hub.repositories.permissions import require_administrator
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, RequiredIdentity
from kcard.hub.server.limits import InTurn, lift
from kcard.hub.server.reading.repository_json import Responses

__all__ = ["router"]

router = APIRouter(tags=["trust"])

NO_NUL = r"\A[^\x00]*\z"  # PostgreSQL can't store NUL
LARGEST = 20 << 20  # bytes of an exam and an audit
LARGEST_NUMBER, LARGEST_SEED = 2**31 - 1, 2**63 - 1
ADMINISTRATOR: Responses = {403: {"description": "The client does not administer the hub"}}
Text = Annotated[str, Field(max_length=1000, pattern=NO_NUL)]
Digest = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
Score = Annotated[float, Field(ge=0, le=1)]


BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "repository, version (the sha256 of its kcard.json), and findings: an exam, an audit or both.",
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["repository", "version", "findings"]},
            }
        },
    }
}


class Finding(BaseModel):
    """An exam or an audit; `record` is all of it, as JSON, `kcard` the version that measured.

    `coverage` is the share of the documents that the evidence covers, `judged` how many these are, `overlap` how far
    evidence and corpus are the same.
    """

    kind: Literal["exam", "audit"]
    checker: Text
    checker_sha256: Digest | None = None
    evidence: Text | None = None
    evidence_sha256: Digest | None = None
    queries: Text
    queries_sha256: Digest
    seed: int = Field(ge=0, le=LARGEST_SEED)
    recall: Score | None = None
    faithfulness: Score | None = None
    factuality: Score | None = None
    kcard: Text | None = None
    coverage: Score | None = None
    judged: int | None = Field(None, ge=0, le=LARGEST_NUMBER)
    overlap: Score | None = None
    record: str = Field(pattern=NO_NUL)


class Results(BaseModel):
    """What was measured of the version of a repository whose kcard.json has this sha256."""

    repository: Text
    version: Digest
    findings: list[Finding] = Field(min_length=1, max_length=2)


async def _posted(request: Request, identity: RequiredIdentity) -> Results:
    """The body, of an administrator's request only: it may be large, and is parsed in a thread."""
    require_administrator(identity)
    lift(request, LARGEST)
    return await run_in_threadpool(_parsed, await request.body())


def _parsed(body: bytes) -> Results:
    try:
        return Results.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Invalid(f"{where}: {first['msg']}") from None


@router.get(
    "/api/kcard/unverified",
    summary="List versions without a verified result",
    response_description="Versions, oldest first; `next` is where the next page starts, or null",
    responses=ADMINISTRATOR,
)
def unverified(
    hub: HubDep,
    identity: OptionalIdentity,
    after: Annotated[int, Query(ge=0, le=LARGEST_NUMBER, description="`next` of the page before.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Page size.")] = 100,
) -> JSONResponse:
    """For administrators of the hub. Cards that ask other services, or whose model is elsewhere, are left out."""
    require_administrator(identity)
    versions, following = hub.registry.audits.unverified(after, limit)
    keys = ("repository", "number", "version", "commit")
    return JSONResponse(
        {"versions": [dict(zip(keys, row, strict=True)) for row in versions], "next": following}
    )


@router.post(
    "/api/kcard/audits",
    summary="Store verified results of a version",
    response_description="The reference of the version",
    responses={**ADMINISTRATOR, 404: {"description": "No such version"}},
    openapi_extra=BODY,
)
def store(
    hub: HubDep, identity: RequiredIdentity, results: Annotated[Results, Depends(_posted)], _turn: InTurn
) -> JSONResponse:
    """For administrators of the hub, whose name is stored with the results."""
    names = [field.name for field in fields(AuditFinding)]
    findings = [AuditFinding(**{name: getattr(each, name) for name in names}) for each in results.findings]
    try:
        version = hub.registry.get(f"{results.repository}@{results.version}")
        stored = hub.registry.audits.add_all(version, findings, by=identity.name)
    except UnknownCard as error:
        raise NotThere("object", f"{results.repository} has no such version") from error
    return JSONResponse({"reference": f"{results.repository}@v{stored[0].version}"})
