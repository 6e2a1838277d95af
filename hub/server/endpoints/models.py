"""Models and datasets: lists and descriptions."""

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from kcard.hub.repositories.listing import LIMIT, MOST, SORTS, ListQuery
from kcard.hub.repositories.permissions import absent
from kcard.hub.repositories.values import Mark, Repository
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, OptionsDep, RepositoryDep, repository_type
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading import repository_json
from kcard.hub.server.reading.details import at_revision, details
from kcard.hub.server.reading.pagination import next_page
from kcard.hub.server.reading.repository_json import ABSENT, Json
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["read"])

# The largest page that reads the files of each repository.
DETAILED_PAGE = 100
# Names that some clients use for a sort.
ALIASES = {"last_modified": "lastModified", "created_at": "createdAt", "trending_score": "trendingScore"}
# Properties that need the files of each repository.
IN_FILES = frozenset({"config", "evalResults", "siblings"})
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
)
def listing(
    request: Request,
    hub: HubDep,
    options: OptionsDep,
    identity: OptionalIdentity,
    types: Segment,
    search: Words = None,
    author: str | None = None,
    filters: Annotated[list[str] | None, Query(alias="filter", description="Required tags")] = None,
    sort: Annotated[str, Query(description=f"One of {', '.join(SORTS)}")] = "lastModified",
    direction: Annotated[int, Query(description="-1 for descending, 1 for ascending")] = -1,
    limit: Annotated[int, Query(ge=1, description=f"Page size, at most {MOST}")] = LIMIT,
    cursor: str | None = None,
    gated: bool | None = None,
    pipeline_tag: str | None = None,
    full: bool = False,
    card_data: Annotated[bool, Query(alias="cardData")] = False,
    config: bool = False,
    expand: Words = None,
) -> JSONResponse:
    """`full` adds files, `cardData` adds the metadata of README.md, `expand` selects properties."""
    wanted = frozenset(expand or ())
    detailed = full or config or bool(wanted & IN_FILES)
    query = ListQuery(
        type=repository_type(types),
        search=" ".join(search) if search else None,
        author=author,
        filters=tuple(tag for text in filters or () for tag in text.split(",") if tag),
        sort=ALIASES.get(sort, sort),
        direction=direction,
        limit=min(limit, DETAILED_PAGE if detailed else MOST),
        cursor=cursor,
        gated=gated,
        pipeline_tag=pipeline_tag,
    )
    page, following = hub.listing.page(query, identity)
    marks = hub.publications.marks([repository.id for repository in page])
    items = [_listed(hub, each, marks.get(each.id), full, card_data, config, wanted) for each in page]
    link = {} if following is None else next_page(request, options, f"/api/{types}", cursor=following)
    return JSONResponse(items, headers=link)


def _listed(
    hub: SharedHub,
    repository: Repository,
    mark: Mark | None,
    full: bool,
    card_data: bool,
    config: bool,
    wanted: frozenset[str],
) -> Json:
    found = repository_json.repository(repository, mark)
    if full or config or wanted & IN_FILES:
        tree = hub.commits.tree(repository, repository.head) if repository.head else {}
        found |= details(hub, repository, tree, mark, blobs=False, config=config or "config" in wanted)
    elif card_data or wanted:
        found |= details(hub, repository, {}, mark, blobs=False, config=False) | {"siblings": None}
    return repository_json.only(wanted, found) if wanted else found


@router.get(
    "/api/{types}/{namespace}/{name}",
    summary="Describe a model or dataset",
    response_description="Properties, files, and `kcard` with the factuality",
    responses=ABSENT,
)
def info(
    hub: HubDep,
    repository: RepositoryDep,
    blobs: bool = False,
    security: SecurityStatus = False,
    expand: Words = None,
) -> JSONResponse:
    """On branch main."""
    return info_at(hub, repository, "main", blobs, security, expand)


@router.get(
    "/api/{types}/{namespace}/{name}/revision/{revision}",
    summary="Describe a revision of a model or dataset",
    response_description="Properties, files, and `kcard` with the factuality",
    responses=ABSENT,
)
def info_at(
    hub: HubDep,
    repository: RepositoryDep,
    revision: Segment,
    blobs: bool = False,
    security: SecurityStatus = False,
    expand: Words = None,
) -> JSONResponse:
    """`blobs` adds the sizes and hashes of the files, `expand` selects properties."""
    sha = hub.refs.resolve(repository, revision)
    tree = hub.commits.tree(repository, sha)
    repository = at_revision(hub, repository, sha, tree)
    mark = hub.publications.marks([repository.id]).get(repository.id)
    found = repository_json.repository(repository, mark)
    found |= details(hub, repository, tree, mark, blobs=blobs, config=repository.type == "model")
    found["spaces"] = []
    if security:
        # Commits refuse whatever could run code.
        found["securityRepoStatus"] = {"scansDone": True, "filesWithIssues": []}
    if expand:
        found = repository_json.only(frozenset(expand), found)
    return JSONResponse(found, headers={"X-Repo-Commit": sha})


@router.get("/api/{types}/{name}", include_in_schema=False)
@router.get("/api/{types}/{name}/revision/{revision}", include_in_schema=False)
def without_namespace(types: Segment, name: Segment, identity: OptionalIdentity) -> JSONResponse:
    """Clients send this for names such as gpt2; every repository of this hub has a namespace."""
    repository_type(types)
    raise absent(name, identity)
