"""Verified results: operators measure published versions with `kcard audit --unverified`, and post the results."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import JSONResponse

from kcard.errors import UnknownCard
from kcard.hub.audits import AuditFinding
from kcard.hub.errors import NotFound
from kcard.hub.permissions import require_administrator
from kcard.hub.server.concurrency import ExpensiveTurn
from kcard.hub.server.dependencies import NO_NUL, HubDep, OptionalIdentity, RequiredIdentity
from kcard.hub.server.limits import lift_body_limit
from kcard.hub.server.responses import describe_invalid

router = APIRouter(tags=["trust"])

MAX_RESULTS_BYTES = 20 << 20  # of an exam and an audit
MAX_NUMBER, MAX_SEED = 2**31 - 1, 2**63 - 1
Text = Annotated[str, Field(max_length=1000, pattern=NO_NUL)]
Digest = Annotated[str, Field(pattern=r"\A[0-9a-f]{64}\z")]
Score = Annotated[float, Field(ge=0, le=1)]


class PostedFinding(BaseModel):
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
    seed: int = Field(ge=0, le=MAX_SEED)
    recall: Score | None = None
    faithfulness: Score | None = None
    factuality: Score | None = None
    kcard: Text | None = None
    coverage: Score | None = None
    judged: int | None = Field(None, ge=0, le=MAX_NUMBER)
    overlap: Score | None = None
    record: str = Field(pattern=NO_NUL)


class Results(BaseModel):
    """Findings about the version of a repository whose kcard.json has this sha256."""

    repository: Text
    version: Digest
    findings: list[PostedFinding] = Field(min_length=1, max_length=2)


async def read_results(request: Request, hub: HubDep, identity: RequiredIdentity) -> Results:
    """Read the body, which may be large, for administrators only; it is parsed in a thread."""
    require_administrator(identity)
    lift_body_limit(request, MAX_RESULTS_BYTES)
    body = await request.body()
    # The token may have been revoked while the body was sent.
    require_administrator(await run_in_threadpool(hub.tokens.resume, identity.token))
    try:
        return await run_in_threadpool(Results.model_validate_json, body)
    except ValidationError as error:
        raise describe_invalid(error.errors()) from None


@router.get("/api/kcard/unverified")
def unverified(
    hub: HubDep,
    identity: OptionalIdentity,
    after: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="`next` of the page before.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Page size.")] = 100,
) -> JSONResponse:
    """List versions without a verified result.

    For administrators of the hub. Cards that send questions elsewhere, or whose model is elsewhere, are
    omitted.
    """
    require_administrator(identity)
    versions, following = hub.registry.audits.unverified(after, limit)
    keys = ("repository", "number", "version", "commit")
    return JSONResponse(
        {"versions": [dict(zip(keys, row, strict=True)) for row in versions], "next": following}
    )


@router.post("/api/kcard/audits")
def store(
    hub: HubDep,
    identity: RequiredIdentity,
    results: Annotated[Results, Depends(read_results)],
    _turn: ExpensiveTurn,
) -> JSONResponse:
    """Store verified results of a version.

    For administrators of the hub, whose name is stored with the results.
    """
    findings = [AuditFinding(**each.model_dump()) for each in results.findings]
    try:
        version = hub.registry.get(f"{results.repository}@{results.version}")
        stored = hub.registry.audits.add_all(version, findings, by=identity.name)
    except UnknownCard as error:
        raise NotFound("object", f"{results.repository} has no such version") from error
    return JSONResponse({"reference": f"{results.repository}@v{stored[0].version}"})
