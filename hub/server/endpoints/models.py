"""Models and datasets: lists and descriptions."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from kcard.hub.repositories.listing import LIMIT, MOST, SORTS, ListQuery
from kcard.hub.repositories.permissions import absent
from kcard.hub.repositories.values import Mark, Repository
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, OptionsDep, RepositoryDep, repository_type
from kcard.hub.server.limits import IN_TURN
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading import repository_json
from kcard.hub.server.reading.details import Encoded, card_properties, joined
from kcard.hub.server.reading.pagination import next_page
from kcard.hub.server.reading.recent import Recent, RecentDep
from kcard.hub.server.reading.repository_json import ABSENT, Json

__all__ = ["router"]

router = APIRouter(tags=["read"])

MEDIA_TYPE = "application/json"
# The largest page that reads the files or the metadata of each repository.
DETAILED_PAGE = 100
LARGEST_PAGE = 1 << 20  # bytes; lists of files count even if they are not among the wanted properties
# Names that some clients use for a sort.
ALIASES = {"last_modified": "lastModified", "created_at": "createdAt", "trending_score": "trendingScore"}
# Properties that need the files of each repository.
IN_FILES = frozenset({"config", "evalResults", "siblings"})
# Properties that need their metadata.
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
    dependencies=[IN_TURN],
)
def listing(
    request: Request,
    hub: HubDep,
    recent: RecentDep,
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
) -> Response:
    """`full` adds files, `cardData` adds the metadata of README.md, `expand` selects properties.

    Pages of more than about a megabyte end early: follow Link.
    """
    shape = _Shape(full, config, card_data, frozenset(expand or ()))
    query = ListQuery(
        type=repository_type(types),
        search=" ".join(search) if search else None,
        author=author,
        filters=tuple(tag for text in filters or () for tag in text.split(",") if tag),
        sort=ALIASES.get(sort, sort),
        direction=direction,
        limit=min(limit, DETAILED_PAGE if shape.files or shape.card else MOST),
        cursor=cursor,
        gated=gated,
        pipeline_tag=pipeline_tag,
        card=shape.card,
    )
    page, following = hub.listing.page(query, identity)
    marks = hub.publications.marks([repository.id for repository in page])
    items: list[bytes] = []
    size = 0
    for place, repository in enumerate(page):
        found, more = _listed(recent, repository, marks.get(repository.id), shape)
        item = _object(found, more, shape.wanted)
        size += max(len(item), sum(map(len, more.values())))
        if items and size > LARGEST_PAGE:
            following = hub.listing.cursor(query, page[place - 1])
            break
        items.append(item)
    link = {} if following is None else next_page(request, options, f"/api/{types}", cursor=following)
    return Response(b"[%s]" % b",".join(items), headers=link, media_type=MEDIA_TYPE)


@dataclass(frozen=True)
class _Shape:
    """What a list says of each repository. `wanted`: the properties; empty: all."""

    full: bool
    config: bool
    card_data: bool
    wanted: frozenset[str]

    @property
    def files(self) -> bool:
        """Whether the files of each repository are read."""
        return self.full or self.config or bool(self.wanted & IN_FILES)

    @property
    def card(self) -> bool:
        """Whether the metadata of README.md is read."""
        return self.files or self.card_data or bool(self.wanted & IN_CARD)


def _listed(recent: Recent, repository: Repository, mark: Mark | None, shape: _Shape) -> tuple[Json, Encoded]:
    found = repository_json.repository(repository, mark)
    if shape.files:
        config = shape.config or "config" in shape.wanted
        return found, recent.details.of(repository, mark, blobs=False, config=config)
    if shape.card or shape.wanted:
        return found, card_properties(repository, mark) | {"siblings": b"null"}
    return found, {}


def _object(found: Json, more: Encoded, wanted: frozenset[str]) -> bytes:
    """The JSON object of the wanted properties; none: of all."""
    if not wanted:
        return joined(found, more)
    return joined(repository_json.only(wanted, found), repository_json.only(wanted, more))


@router.get(
    "/api/{types}/{namespace}/{name}",
    summary="Describe a model or dataset",
    response_description="Properties, files, and `kcard` with the factuality",
    responses=ABSENT,
    dependencies=[IN_TURN],
)
def info(
    hub: HubDep,
    recent: RecentDep,
    repository: RepositoryDep,
    blobs: bool = False,
    security: SecurityStatus = False,
    expand: Words = None,
) -> Response:
    """On branch main."""
    return info_at(hub, recent, repository, "main", blobs, security, expand)


@router.get(
    "/api/{types}/{namespace}/{name}/revision/{revision}",
    summary="Describe a revision of a model or dataset",
    response_description="Properties, files, and `kcard` with the factuality",
    responses=ABSENT,
    dependencies=[IN_TURN],
)
def info_at(
    hub: HubDep,
    recent: RecentDep,
    repository: RepositoryDep,
    revision: Segment,
    blobs: bool = False,
    security: SecurityStatus = False,
    expand: Words = None,
) -> Response:
    """`blobs` adds the sizes and hashes of the files, `expand` selects properties."""
    sha = hub.refs.resolve(repository, revision)
    repository = recent.details.at_revision(repository, sha)
    mark = hub.publications.marks([repository.id]).get(repository.id)
    found = repository_json.repository(repository, mark)
    more = recent.details.of(repository, mark, blobs=blobs, config=repository.type == "model")
    found["spaces"] = []
    if security:
        # Commits refuse whatever could run code.
        found["securityRepoStatus"] = {"scansDone": True, "filesWithIssues": []}
    content = _object(found, more, frozenset(expand or ()))
    return Response(content, headers={"X-Repo-Commit": sha}, media_type=MEDIA_TYPE)


@router.get("/api/{types}/{name}", include_in_schema=False)
@router.get("/api/{types}/{name}/revision/{revision}", include_in_schema=False)
def without_namespace(types: Segment, name: Segment, identity: OptionalIdentity) -> JSONResponse:
    """Clients send this for names such as gpt2; every repository of this hub has a namespace."""
    repository_type(types)
    raise absent(name, identity)
