"""Trees, commits, branches and tags."""

import json
from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Annotated, TypeAlias
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Body, Depends, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from kcard.hub.accounts import Identity
from kcard.hub.db.models import Commit, Repository
from kcard.hub.errors import Forbidden, Invalid, NotFound, TooLarge, Unsupported
from kcard.hub.history import Commits
from kcard.hub.permissions import require_write
from kcard.hub.server import responses
from kcard.hub.server.caches import Caches, CachesDep, Folder, TreeItem
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    RepositoryDep,
    RequiredIdentity,
    RestOfPath,
    Segment,
    WritableRepository,
    require_download,
)
from kcard.hub.server.limits import EXPENSIVE, ExpensiveTurn
from kcard.hub.server.responses import ABSENT, Json, link_to_next_page
from kcard.hub.server.routes import commit as commit_routes
from kcard.hub.services import HubServices
from kcard.hub.values import Entry

trees_router = APIRouter(tags=["read"])

TREES_PAGE, EXPANDED_PAGE = 1000, 100
TREES_LARGEST_PAGE, ITEM = 1 << 20, 300  # bytes of a page, and of an item without its path
MOST_PATHS = 1000
FORM = "application/x-www-form-urlencoded"
# Limits of the search for the last commit of a path: commits, and files in all of them. 20,000 files take 0.1 s.
MOST_COMMITS, MOST_ENTRIES = 100, 20_000
Cursor: TypeAlias = Annotated[int, Query(ge=0, le=1_000_000_000)]


@trees_router.get(
    "/api/{types}/{namespace}/{name}/tree/{revision}",
    summary="List the files of a revision",
    response_description="Files and folders; Link has the next page",
    responses=ABSENT,
    dependencies=[EXPENSIVE],
)
def root(
    request: Request,
    hub: HubDep,
    caches: CachesDep,
    options: OptionsDep,
    repository: RepositoryDep,
    revision: Segment,
    recursive: bool = False,
    expand: bool = False,
    cursor: Cursor = 0,
) -> JSONResponse:
    """`expand` adds the last commit of each item."""
    return tree(request, hub, caches, options, repository, revision, "", recursive, expand, cursor)


@trees_router.get(
    "/api/{types}/{namespace}/{name}/tree/{revision}/{path:path}",
    summary="List a folder of a revision",
    response_description="Files and folders; Link has the next page",
    responses=ABSENT,
    dependencies=[EXPENSIVE],
)
def tree(
    request: Request,
    hub: HubDep,
    caches: CachesDep,
    options: OptionsDep,
    repository: RepositoryDep,
    revision: Segment,
    path: RestOfPath,
    recursive: bool = False,
    expand: bool = False,
    cursor: Cursor = 0,
) -> JSONResponse:
    """The path may be quoted as one segment. All pages show the same commit, even if the branch moves on."""
    sha = hub.refs.resolve(repository, revision)
    path = path.strip("/")
    items = caches.folders(repository, sha).inside(path, recursive)
    if items is None:
        raise NotFound(
            "entry", f"folder {path[:200]!r} not found in {repository.name} at {revision[:100]!r}", commit=sha
        )
    # A page has at most a megabyte of paths and their properties.
    page = items[cursor : cursor + (EXPANDED_PAGE if expand else TREES_PAGE)]
    sizes = accumulate(len(item.path.encode()) + ITEM for item in page)
    stop = cursor + max(1, sum(size <= TREES_LARGEST_PAGE for size in sizes))
    headers = {"X-Repo-Commit": sha}
    if stop < len(items):
        here = f"/api/{repository.type}s/{repository.name}/tree/{sha}" + (
            f"/{quote(path, safe='')}" if path else ""
        )
        headers |= link_to_next_page(request, options, here, cursor=stop)
    return JSONResponse(
        _describe_items(hub, caches, repository, sha, items[cursor:stop], expand), headers=headers
    )


async def read_paths(request: Request) -> tuple[list[str], bool]:
    """Read `paths` and `expand` from a form, as clients send it, or from JSON."""
    body = await request.body()
    kind = request.headers.get("content-type", FORM).partition(";")[0].strip().lower()
    try:
        if kind == FORM:
            fields = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=10 * MOST_PATHS, errors="strict"
            )
            expand = any(key == "expand" and value.lower() in {"true", "1"} for key, value in fields)
            return [value for key, value in fields if key in {"paths", "paths[]"}], expand
        match json.loads(body):
            case {"paths": list(paths), **rest} if all(isinstance(path, str) for path in paths):
                return paths, bool(rest.get("expand"))
            case {"paths": str(path), **rest}:
                return [path], bool(rest.get("expand"))
        raise ValueError
    except (ValueError, RecursionError):
        raise Invalid(f"invalid body {body[:40]!r}: send paths as JSON or as a form") from None


@trees_router.post(
    "/api/{types}/{namespace}/{name}/paths-info/{revision}",
    summary="Describe files and folders of a revision",
    response_description="The paths that exist",
    responses=ABSENT,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                kind: {
                    "schema": {
                        "type": "object",
                        "required": ["paths"],
                        "properties": {
                            "paths": {"type": "array", "items": {"type": "string"}},
                            "expand": {"type": "boolean"},
                        },
                    }
                }
                for kind in (FORM, "application/json")
            },
        }
    },
)
def paths_info(
    form: Annotated[tuple[list[str], bool], Depends(read_paths)],  # received before the token is checked
    hub: HubDep,
    caches: CachesDep,
    repository: RepositoryDep,
    revision: Segment,
    _turn: ExpensiveTurn,
) -> JSONResponse:
    """Missing paths are omitted."""
    paths, expand = form
    if len(paths) > MOST_PATHS:
        raise TooLarge(f"too many paths ({len(paths)}): send at most {MOST_PATHS} in one request")
    sha = hub.refs.resolve(repository, revision)
    folders = caches.folders(repository, sha)
    matches = (folders.get(path) for path in dict.fromkeys(path.strip("/") for path in paths) if path)
    items = [item for item in matches if item is not None]
    return JSONResponse(
        _describe_items(hub, caches, repository, sha, items, expand), headers={"X-Repo-Commit": sha}
    )


def _describe_items(
    hub: HubServices,
    caches: Caches,
    repository: Repository,
    sha: str,
    items: Sequence[TreeItem],
    expand: bool,
) -> list[Json]:
    if not expand:
        return [describe_item(item) for item in items]
    last = _find_last_commits(hub.commits, caches, repository, sha, [item.path for item in items])
    return [responses.expand_item(describe_item(item), last.get(item.path)) for item in items]


def describe_item(item: TreeItem) -> Json:
    """Describe a file or folder as clients read it."""
    match item:
        case Entry():
            return responses.describe_file(item)
        case Folder(path, oid):
            return responses.describe_folder(path, oid)


def _find_last_commits(
    commits: Commits, caches: Caches, repository: Repository, sha: str, paths: Collection[str]
) -> dict[str, Commit]:
    """Return the commit at or before `sha` that last changed each path, omitting paths that changed too long ago."""
    last: dict[str, Commit] = {}
    history = commits.list(repository, sha, 0, MOST_COMMITS)
    after = caches.tree(repository, sha) if history else {}
    read = 0
    for commit in history:
        before = {} if commit.parent is None else caches.tree(repository, commit.parent)
        # The paths of files that differ, and of the folders with them.
        changed = {
            path for path, entry in after.items() if path not in before or before[path].oid != entry.oid
        }
        changed |= before.keys() - after.keys()
        for path in list(changed):
            while (path := path.rpartition("/")[0]) and path not in changed:
                changed.add(path)
        last |= {path: commit for path in paths if path in changed and path not in last}
        read += len(before)
        if read > MOST_ENTRIES or len(last) == len(paths):
            break
        after = before
    return last


# Branches, tags, history and likes of a repository; checks of the client's permissions.

refs_router = APIRouter(tags=["read"])

REFS_PAGE, MOST = 50, 100  # commits
REFS_LARGEST_PAGE = 1 << 20  # characters of commits with long messages


@refs_router.get(
    "/api/{types}/{namespace}/{name}/refs",
    summary="List branches and tags",
    response_description="Names with their commits",
    responses=ABSENT,
)
def refs(hub: HubDep, repository: RepositoryDep) -> JSONResponse:
    """`pullRequests` and `converts` are always empty."""
    return JSONResponse(
        {
            "branches": responses.describe_refs(hub.refs.branches(repository), "refs/heads/"),
            "tags": responses.describe_refs(hub.refs.tags(repository), "refs/tags/"),
            "converts": [],
            "pullRequests": [],
        }
    )


@refs_router.get(
    "/api/{types}/{namespace}/{name}/commits/{revision}",
    summary="List the commits up to a revision",
    response_description="Newest first; Link has the next page",
    responses=ABSENT,
    dependencies=[EXPENSIVE],
)
def commits(
    request: Request,
    hub: HubDep,
    options: OptionsDep,
    repository: RepositoryDep,
    revision: Segment,
    p: Annotated[int, Query(ge=0, le=1_000_000, description="Page number, from 0")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = REFS_PAGE,
    expand: Annotated[list[str] | None, Query(alias="expand[]")] = None,
) -> JSONResponse:
    """At most 100 on a page. The next one starts with the parent of the last commit of this one."""
    sha = hub.refs.resolve(repository, revision)
    formatted = "formatted" in (expand or ())
    page = hub.commits.list(repository, sha, p, min(limit, MOST))
    sizes = accumulate(len(commit.title) + len(commit.message) for commit in page)
    page = page[: max(1, bisect_right(list(sizes), REFS_LARGEST_PAGE))]
    headers = {"X-Repo-Commit": sha}
    if page and page[-1].parent is not None:
        here = f"/api/{repository.type}s/{repository.name}/commits/{page[-1].parent}"
        headers |= link_to_next_page(request, options, here, p=0)
    return JSONResponse([responses.describe_commit(commit, formatted) for commit in page], headers=headers)


@refs_router.get(
    "/api/{types}/{namespace}/{name}/auth-check",
    summary="Check that the client may download files",
    response_description="Allowed",
    responses={403: {"description": "Gated"}, **ABSENT},
)
def auth_check(hub: HubDep, repository: RepositoryDep, identity: OptionalIdentity) -> JSONResponse:
    """For a gated repository, this requires granted access."""
    require_download(hub, identity, repository)
    return JSONResponse({})


@refs_router.get(
    "/api/{types}/{namespace}/{name}/auth-check/write",
    summary="Check that the client may write",
    response_description="Allowed",
    responses={403: {"description": "Not allowed"}, **ABSENT},
)
def auth_check_write(repository: RepositoryDep, identity: RequiredIdentity) -> JSONResponse:
    """With this token."""
    require_write(identity, repository)
    return JSONResponse({})


@refs_router.get(
    "/api/{types}/{namespace}/{name}/discussions",
    summary="List discussions",
    response_description="An empty list",
    responses=ABSENT,
)
def discussions(repository: RepositoryDep) -> JSONResponse:  # noqa: ARG001 (checks that the client may read it)
    """Clients look for pull requests here before they convert weights. This hub has none."""
    return JSONResponse({"discussions": [], "count": 0, "start": 0, "numClosedDiscussions": 0})


@refs_router.post(
    "/api/{types}/{namespace}/{name}/like",
    summary="Like a repository",
    response_description="Counted once",
    responses={403: {"description": "The token is read-only"}, **ABSENT},
)
def like(hub: HubDep, repository: RepositoryDep, identity: RequiredIdentity) -> JSONResponse:
    """For everyone who can read it, with a token that can write."""
    _require_writing_token(identity)
    hub.repositories.like(repository, identity.account_id)
    return JSONResponse({})


@refs_router.delete(
    "/api/{types}/{namespace}/{name}/like",
    summary="Remove a like",
    response_description="Removed",
    responses={403: {"description": "The token is read-only"}, **ABSENT},
)
def unlike(hub: HubDep, repository: RepositoryDep, identity: RequiredIdentity) -> JSONResponse:
    """Does nothing if there is no like."""
    _require_writing_token(identity)
    hub.repositories.like(repository, identity.account_id, liked=False)
    return JSONResponse({})


def _require_writing_token(identity: Identity) -> None:
    if identity.scope == "read":
        raise Forbidden("a token with scope read can't like repositories: use one with scope write")


# Branches and tags. A tag on a commit with a card publishes a version.

branches_tags_router = APIRouter(tags=["write"])

BASE = "/api/{types}/{namespace}/{name}"
MAIN = "main"
NO_NUL = r"\A[^\x00]*\z"  # PostgreSQL can't store NUL


class Start(BaseModel):
    """Where a branch starts, by default at main."""

    startingPoint: str | None = Field(default=None, max_length=300, pattern=NO_NUL)  # noqa: N815 # the protocol's
    emptyBranch: bool = False  # noqa: N815
    overwrite: bool = False


class Tag(BaseModel):
    """A tag's name and message."""

    tag: str = Field(max_length=300)
    message: str | None = Field(default=None, max_length=20_000, pattern=NO_NUL)


@branches_tags_router.post(
    BASE + "/branch/{branch}",
    summary="Create a branch",
    response_description="Created",
    responses={409: {"description": "The name is taken"}},
)
def create_branch(
    branch: Segment,
    repository: WritableRepository,
    hub: HubDep,
    start: Annotated[Start | None, Body()] = None,
) -> JSONResponse:
    """startingPoint may be a branch, a tag or a commit."""
    start = start or Start()
    if start.emptyBranch or start.overwrite:
        raise Unsupported(
            "emptyBranch and overwrite are not supported: delete the branch and create it again"
        )
    sha = hub.refs.resolve(repository, start.startingPoint or MAIN)
    hub.refs.create_branch(repository, branch, sha)
    return JSONResponse({})


@branches_tags_router.delete(
    BASE + "/branch/{branch}", summary="Delete a branch", response_description="Deleted"
)
def delete_branch(branch: Segment, repository: WritableRepository, hub: HubDep) -> Response:
    """Any branch but main. Its commits stay, since tags and versions may refer to them."""
    hub.refs.delete_branch(repository, branch)
    return JSONResponse({})


@branches_tags_router.post(
    BASE + "/tag/{revision}",
    summary="Create a tag; if the commit has a card, publish it",
    responses={
        200: {"description": "The published version, if any"},
        400: {"description": "The card can't be published"},
        409: {"description": "The name is taken"},
    },
)
def create_tag(
    revision: Segment, tag: Tag, repository: WritableRepository, hub: HubDep, identity: RequiredIdentity
) -> JSONResponse:
    """The tag of a published version is immutable."""
    sha = hub.refs.resolve(repository, revision)
    published = commit_routes.create_tag(hub, identity, repository, tag.tag, sha, tag.message or "")
    if published is None:
        return JSONResponse({})
    return JSONResponse({"version": published.version, "number": published.number})


@branches_tags_router.delete(
    BASE + "/tag/{tag}",
    summary="Delete a tag",
    response_description="Deleted",
    responses={403: {"description": "The tag published a version"}},
)
def delete_tag(
    tag: Segment, repository: WritableRepository, hub: HubDep, identity: RequiredIdentity
) -> Response:
    """Only administrators of the hub can delete a tag that published a version."""
    hub.refs.delete_tag(repository, tag, identity)
    hub.events.add(identity.name, "tag.deleted", repository.name, tag=tag)
    return JSONResponse({})
