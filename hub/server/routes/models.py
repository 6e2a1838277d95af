"""/api/models and /api/datasets: lists and descriptions of repositories."""

from typing import Annotated, TypeAlias

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from kcard.hub.listing import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, SORTS, ListQuery
from kcard.hub.permissions import repository_not_found
from kcard.hub.server import responses
from kcard.hub.server.caches import CachesDep, EncodedProperties, card_properties, join_json
from kcard.hub.server.concurrency import EXPENSIVE
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    RepositoryDep,
    Segment,
    repository_type,
)
from kcard.hub.server.responses import Json, link_to_next_page
from kcard.hub.values import MAIN

router = APIRouter(tags=["read"])

MEDIA_TYPE = "application/json"
# The largest page that reads the files or the metadata of each repository.
MAX_DETAILED = 100
MAX_PAGE_BYTES = 1 << 20  # lists of files count even if they are not among the selected properties
# Names of sorts that some clients use.
ALIASES = {"last_modified": "lastModified", "created_at": "createdAt", "trending_score": "trendingScore"}
# Properties that are read from the files of each repository.
IN_FILES = frozenset({"config", "evalResults", "siblings"})
# Properties that are read from the metadata of its README.md.
IN_CARD = frozenset({"cardData", "model-index"})
Words: TypeAlias = Annotated[list[str] | None, Query()]


@router.get("/api/{types}", dependencies=[EXPENSIVE])
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
    """List models or datasets.

    `full` adds files, `cardData` adds the metadata of README.md, `expand` selects properties. Pages of more
    than about a megabyte end early: follow Link.
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
        limit=min(limit, MAX_DETAILED if with_card else MAX_PAGE_SIZE),
        cursor=cursor,
        gated=gated,
        pipeline_tag=pipeline_tag,
        card=with_card,
    )
    page, following = hub.listing.page(query, identity)
    summaries = hub.publications.summarize([repository.id for repository in page])
    # Their properties, up to about MAX_PAGE_BYTES.
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
        if items and size > MAX_PAGE_BYTES:
            following = hub.listing.cursor(query, page[place - 1])
            break
        items.append(item)
    headers = {}
    if following is not None:
        headers = link_to_next_page(request, options, f"/api/{types}", cursor=following)
    return Response(b"[%s]" % b",".join(items), headers=headers, media_type=MEDIA_TYPE)


def _encode_object(properties: Json, more: EncodedProperties, selected: frozenset[str]) -> bytes:
    """Return the JSON object of the selected properties; of all if none is selected."""
    if not selected:
        return join_json(properties, more)
    properties = responses.select_properties(selected, properties)
    return join_json(properties, responses.select_properties(selected, more))


@router.get("/api/{types}/{namespace}/{name}", dependencies=[EXPENSIVE])
@router.get("/api/{types}/{namespace}/{name}/revision/{revision}", dependencies=[EXPENSIVE])
def info(
    hub: HubDep,
    caches: CachesDep,
    repository: RepositoryDep,
    revision: Segment = MAIN,
    blobs: bool = False,
    security: Annotated[bool, Query(alias="securityStatus")] = False,
    expand: Words = None,
) -> Response:
    """Describe a model or dataset: its properties, its files, and as `kcard` its factuality.

    `blobs` adds the sizes and hashes of the files, `expand` selects properties.
    """
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
