"""/api/models: lists of repositories, details, and audits of versions."""

from dataclasses import fields
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, Field, ValidationError
from starlette.responses import JSONResponse, Response

from kcard.errors import UnknownCard
from kcard.hub.audits import AuditFinding
from kcard.hub.errors import Invalid, NotFound
from kcard.hub.listing import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, SORTS, ListQuery
from kcard.hub.permissions import repository_not_found, require_administrator
from kcard.hub.server import responses
from kcard.hub.server.caches import CachesDep, EncodedProperties, card_properties, join_json
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    RepositoryDep,
    RequiredIdentity,
    Segment,
    repository_type,
)
from kcard.hub.server.limits import EXPENSIVE, ExpensiveTurn, lift_body_limit
from kcard.hub.server.responses import ABSENT, Json, Responses, link_to_next_page

router = APIRouter(tags=["read"])

MEDIA_TYPE = "application/json"
# The largest page that reads the files or the metadata of each repository.
DETAILED_PAGE = 100
LARGEST_PAGE = 1 << 20  # bytes; lists of files count even if they are not among the selected properties
# Names of sorts that some clients use.
ALIASES = {"last_modified": "lastModified", "created_at": "createdAt", "trending_score": "trendingScore"}
# Properties that are read from the files of each repository.
IN_FILES = frozenset({"config", "evalResults", "siblings"})
# Properties that are read from the metadata of its README.md.
IN_CARD = frozenset({"cardData", "model-index"})
Words: TypeAlias = Annotated[list[str] | None, Query()]
SecurityStatus: TypeAlias = Annotated[bool, Query(alias="securityStatus")]


@router.get(
    "/api/{types}",
    summary="List models or datasets",
    responses={
        200: {"description": "Readable repositories; Link has the next page; `kcard` has the factuality"},
        400: {"description": "An invalid parameter"},
        404: {"description": "Neither models nor datasets"},
    },
    dependencies=[EXPENSIVE],
)
def listing(
    request: Request,
    hub: HubDep,
    caches: CachesDep,
    options: OptionsDep,
    identity: OptionalIdentity,
    types: Segment,
    search: Words = None,
    author: str | None = None,
    filters: Annotated[list[str] | None, Query(alias="filter", description="Required tags")] = None,
    sort: Annotated[str, Query(description=f"One of {', '.join(SORTS)}")] = "lastModified",
    direction: Annotated[int, Query(description="-1 for descending, 1 for ascending")] = -1,
    limit: Annotated[int, Query(ge=1, description=f"Page size, at most {MAX_PAGE_SIZE}")] = DEFAULT_PAGE_SIZE,
    cursor: str | None = None,
    gated: bool | None = None,
    pipeline_tag: str | None = None,
    full: bool = False,
    card_data: Annotated[bool, Query(alias="cardData")] = False,
    config: bool = False,
    expand: Words = None,
) -> Response:
    """`full` adds files, `cardData` adds the metadata of README.md, `expand` selects properties.

    Pages of more than about a megabyte end early: follow Link.
    """
    # The page of repositories.
    selected = frozenset(expand or ())
    with_config = config or "config" in selected
    with_files = full or config or bool(selected & IN_FILES)
    with_card = with_files or card_data or bool(selected & IN_CARD)
    query = ListQuery(
        type=repository_type(types),
        search=" ".join(search) if search else None,
        author=author,
        filters=tuple(tag for text in filters or () for tag in text.split(",") if tag),
        sort=ALIASES.get(sort, sort),
        direction=direction,
        limit=min(limit, DETAILED_PAGE if with_card else MAX_PAGE_SIZE),
        cursor=cursor,
        gated=gated,
        pipeline_tag=pipeline_tag,
        card=with_card,
    )
    page, following = hub.listing.page(query, identity)
    summaries = hub.publications.summarize([repository.id for repository in page])
    # Their properties, up to about LARGEST_PAGE bytes.
    items: list[bytes] = []
    size = 0
    for place, repository in enumerate(page):
        summary = summaries.get(repository.id)
        properties = responses.describe_repository(repository, summary)
        more: EncodedProperties = {}
        if with_files:
            more = caches.file_properties(repository, summary, blobs=False, config=with_config)
        elif with_card or selected:
            more = card_properties(repository, summary) | {"siblings": b"null"}
        item = _encode_object(properties, more, selected)
        size += max(len(item), sum(map(len, more.values())))
        if items and size > LARGEST_PAGE:
            following = hub.listing.cursor(query, page[place - 1])
            break
        items.append(item)
    link = {} if following is None else link_to_next_page(request, options, f"/api/{types}", cursor=following)
    return Response(b"[%s]" % b",".join(items), headers=link, media_type=MEDIA_TYPE)


def _encode_object(properties: Json, more: EncodedProperties, selected: frozenset[str]) -> bytes:
    """Return the JSON object of the selected properties; of all if none is selected."""
    if not selected:
        return join_json(properties, more)
    return join_json(
        responses.select_properties(selected, properties), responses.select_properties(selected, more)
    )


@router.get(
    "/api/{types}/{namespace}/{name}",
    summary="Describe a model or dataset",
    response_description="Properties, files, and `kcard` with the factuality",
    responses=ABSENT,
    dependencies=[EXPENSIVE],
)
def info(
    hub: HubDep,
    caches: CachesDep,
    repository: RepositoryDep,
    blobs: bool = False,
    security: SecurityStatus = False,
    expand: Words = None,
) -> Response:
    """On branch main."""
    return info_at(hub, caches, repository, "main", blobs, security, expand)


@router.get(
    "/api/{types}/{namespace}/{name}/revision/{revision}",
    summary="Describe a revision of a model or dataset",
    response_description="Properties, files, and `kcard` with the factuality",
    responses=ABSENT,
    dependencies=[EXPENSIVE],
)
def info_at(
    hub: HubDep,
    caches: CachesDep,
    repository: RepositoryDep,
    revision: Segment,
    blobs: bool = False,
    security: SecurityStatus = False,
    expand: Words = None,
) -> Response:
    """`blobs` adds the sizes and hashes of the files, `expand` selects properties."""
    sha = hub.refs.resolve(repository, revision)
    repository = caches.at_revision(repository, sha)
    summary = hub.publications.summarize([repository.id]).get(repository.id)
    properties = responses.describe_repository(repository, summary)
    more = caches.file_properties(repository, summary, blobs=blobs, config=repository.type == "model")
    properties["spaces"] = []
    if security:
        # Commits refuse whatever could run code.
        properties["securityRepoStatus"] = {"scansDone": True, "filesWithIssues": []}
    content = _encode_object(properties, more, frozenset(expand or ()))
    return Response(content, headers={"X-Repo-Commit": sha}, media_type=MEDIA_TYPE)


@router.get("/api/{types}/{name}", include_in_schema=False)
@router.get("/api/{types}/{name}/revision/{revision}", include_in_schema=False)
def without_namespace(types: Segment, name: Segment, identity: OptionalIdentity) -> JSONResponse:
    """Clients send this for names such as gpt2; every repository of this hub has a namespace."""
    repository_type(types)
    raise repository_not_found(name, identity)


# Verified results: operators measure published versions with `kcard audit --unverified`, and post the results.

audits_router = APIRouter(tags=["trust"])

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
                "schema": {"type": "object", "required": ["repository", "version", "findings"]}
            }
        },
    }
}


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
    """Findings about the version of a repository whose kcard.json has this sha256."""

    repository: Text
    version: Digest
    findings: list[PostedFinding] = Field(min_length=1, max_length=2)


async def read_results(request: Request, hub: HubDep, identity: RequiredIdentity) -> Results:
    """Read the body, which may be large, for administrators only; it is parsed in a thread."""
    require_administrator(identity)
    lift_body_limit(request, LARGEST)
    body = await request.body()
    # The token may have been revoked while the body was sent.
    require_administrator(await run_in_threadpool(hub.tokens.resume, identity.token))
    try:
        return await run_in_threadpool(Results.model_validate_json, body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Invalid(f"{where}: {first['msg']}") from None


@audits_router.get(
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
    """For administrators of the hub. Cards that send questions elsewhere, or whose model is elsewhere, are omitted."""
    require_administrator(identity)
    versions, following = hub.registry.audits.unverified(after, limit)
    keys = ("repository", "number", "version", "commit")
    return JSONResponse(
        {"versions": [dict(zip(keys, row, strict=True)) for row in versions], "next": following}
    )


@audits_router.post(
    "/api/kcard/audits",
    summary="Store verified results of a version",
    response_description="The reference of the version",
    responses={**ADMINISTRATOR, 404: {"description": "No such version"}},
    openapi_extra=BODY,
)
def store(
    hub: HubDep,
    identity: RequiredIdentity,
    results: Annotated[Results, Depends(read_results)],
    _turn: ExpensiveTurn,
) -> JSONResponse:
    """For administrators of the hub, whose name is stored with the results."""
    names = [field.name for field in fields(AuditFinding)]
    findings = [AuditFinding(**{name: getattr(each, name) for name in names}) for each in results.findings]
    try:
        version = hub.registry.get(f"{results.repository}@{results.version}")
        stored = hub.registry.audits.add_all(version, findings, by=identity.name)
    except UnknownCard as error:
        raise NotFound("object", f"{results.repository} has no such version") from error
    return JSONResponse({"reference": f"{results.repository}@v{stored[0].version}"})
