"""Models and datasets: lists of them, and what each is."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse

from kcard.hub.repositories.listing import LIMIT, MOST, SORTS, ListQuery
from kcard.hub.repositories.rights import absent
from kcard.hub.repositories.values import Mark, Repository
from kcard.hub.server.asking import (
    Asked,
    MaybeIdentity,
    Options,
    TheHub,
    base_url,
    repository_type,
)
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading import repository_json
from kcard.hub.server.reading.details import at_revision, details
from kcard.hub.server.reading.linked import next_page
from kcard.hub.server.reading.repository_json import Answers, Json
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["read"])

# The largest page that looks into the files of each repository.
DETAILED_PAGE = 100
# Names that some clients use for a sort.
ALIASES = {"last_modified": "lastModified", "created_at": "createdAt", "trending_score": "trendingScore"}
# What needs a look into the files of each repository of a list.
IN_FILES = frozenset({"config", "siblings"})
ABSENT: Answers = {404: {"description": "No such repository or revision: X-Error-Code says which"}}
Words = Annotated[list[str] | None, Query()]


@router.get(
    "/api/{types}",
    summary="List models or datasets",
    responses={
        200: {"description": "Those that may be read; Link has the next page; `kcard` tells factuality"},
        400: {"description": "A parameter that can't be"},
        404: {"description": "Neither models nor datasets"},
    },
)
def listing(
    request: Request,
    hub: TheHub,
    options: Options,
    identity: MaybeIdentity,
    types: Segment,
    search: Words = None,
    author: str | None = None,
    filters: Annotated[list[str] | None, Query(alias="filter", description="Tags; all must be there")] = None,
    sort: Annotated[str, Query(description=f"One of {', '.join(SORTS)}")] = "lastModified",
    direction: Annotated[int, Query(description="-1: the largest first")] = -1,
    limit: Annotated[int, Query(ge=1, description=f"At most {MOST} come at once")] = LIMIT,
    cursor: str | None = None,
    gated: bool | None = None,
    pipeline_tag: str | None = None,
    full: bool = False,
    card_data: Annotated[bool, Query(alias="cardData")] = False,
    config: bool = False,
    expand: Words = None,
) -> JSONResponse:
    """`full` adds the files, `cardData` the metadata of the README.md, `expand` gives what it names and no more."""
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
    headers: dict[str, str] = {}
    if following is not None:
        asked = request.query_params.multi_items()
        headers |= next_page(base_url(request, options), f"/api/{types}", asked, cursor=following)
    return JSONResponse(items, headers=headers)


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
        found |= details(hub, repository, tree, blobs=False, config=config or "config" in wanted)
    elif card_data or wanted:
        found |= details(hub, repository, {}, blobs=False, config=False) | {"siblings": None}
    return repository_json.only(wanted, found) if wanted else found


@router.get(
    "/api/{types}/{namespace}/{name}",
    summary="Describe a model or dataset",
    responses={200: {"description": "What it is, its files, `kcard` with its factuality"}, **ABSENT},
)
def info(
    hub: TheHub,
    repository: Asked,
    blobs: bool = False,
    security: Annotated[bool, Query(alias="securityStatus")] = False,
    expand: Words = None,
) -> JSONResponse:
    """As of branch main."""
    return _info(hub, repository, "main", blobs, security, expand)


@router.get(
    "/api/{types}/{namespace}/{name}/revision/{revision}",
    summary="Describe a revision of a model or dataset",
    responses={200: {"description": "What it is, its files, `kcard` with its factuality"}, **ABSENT},
)
def info_at(
    hub: TheHub,
    repository: Asked,
    revision: Segment,
    blobs: bool = False,
    security: Annotated[bool, Query(alias="securityStatus")] = False,
    expand: Words = None,
) -> JSONResponse:
    """`blobs` adds the sizes and hashes of the files, `expand` gives what it names and no more."""
    return _info(hub, repository, revision, blobs, security, expand)


@router.get("/api/{types}/{name}", include_in_schema=False)
@router.get("/api/{types}/{name}/revision/{revision}", include_in_schema=False)
def without_namespace(types: Segment, name: Segment, identity: MaybeIdentity) -> JSONResponse:
    """Clients ask so for gpt2: no repository here is without a namespace."""
    repository_type(types)
    raise absent(name, identity)


def _info(
    hub: SharedHub,
    repository: Repository,
    revision: str,
    blobs: bool,
    security: bool,
    expand: list[str] | None,
) -> JSONResponse:
    sha = hub.refs.resolve(repository, revision)
    tree = hub.commits.tree(repository, sha)
    repository = at_revision(hub, repository, sha, tree)
    mark = hub.publications.marks([repository.id]).get(repository.id)
    found = repository_json.repository(repository, mark)
    found |= details(hub, repository, tree, blobs=blobs, config=repository.type == "model")
    found["spaces"] = []
    if security:
        # Whatever could run code was refused when it was committed.
        found["securityRepoStatus"] = {"scansDone": True, "filesWithIssues": []}
    if expand:
        found = repository_json.only(frozenset(expand), found)
    return JSONResponse(found, headers={"X-Repo-Commit": sha})
