"""Files and folders of a revision."""

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, TypeAlias
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import JSONResponse

from kcard.hub.refusals import Invalid, NotThere, TooLarge
from kcard.hub.repositories.commits import Commits
from kcard.hub.repositories.values import Commit, Entry, Repository
from kcard.hub.server.dependencies import HubDep, OptionsDep, RepositoryDep
from kcard.hub.server.limits import IN_TURN, InTurn
from kcard.hub.server.middleware.raw_path import Rest, Segment
from kcard.hub.server.reading import repository_json
from kcard.hub.server.reading.folders import Folder, Listed
from kcard.hub.server.reading.pagination import next_page
from kcard.hub.server.reading.recent import Recent, RecentDep
from kcard.hub.server.reading.recent_trees import RecentTrees
from kcard.hub.server.reading.repository_json import ABSENT, Json
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["read"])

PAGE, EXPANDED_PAGE = 1000, 100
LARGEST_PAGE, ITEM = 1 << 20, 300  # bytes of a page, and of an item beside its path
MOST_PATHS = 1000
FORM = "application/x-www-form-urlencoded"
# Limits of the search for the last commit of a path: commits, and files in all of them. 20,000 files take 0.1 s.
MOST_COMMITS, MOST_ENTRIES = 100, 20_000
Cursor: TypeAlias = Annotated[int, Query(ge=0, le=1_000_000_000)]


@router.get(
    "/api/{types}/{namespace}/{name}/tree/{revision}",
    summary="List the files of a revision",
    response_description="Files and folders; Link has the next page",
    responses=ABSENT,
    dependencies=[IN_TURN],
)
def root(
    request: Request,
    hub: HubDep,
    recent: RecentDep,
    options: OptionsDep,
    repository: RepositoryDep,
    revision: Segment,
    recursive: bool = False,
    expand: bool = False,
    cursor: Cursor = 0,
) -> JSONResponse:
    """`expand` adds the last commit of each item."""
    return tree(request, hub, recent, options, repository, revision, "", recursive, expand, cursor)


@router.get(
    "/api/{types}/{namespace}/{name}/tree/{revision}/{path:path}",
    summary="List a folder of a revision",
    response_description="Files and folders; Link has the next page",
    responses=ABSENT,
    dependencies=[IN_TURN],
)
def tree(
    request: Request,
    hub: HubDep,
    recent: RecentDep,
    options: OptionsDep,
    repository: RepositoryDep,
    revision: Segment,
    path: Rest,
    recursive: bool = False,
    expand: bool = False,
    cursor: Cursor = 0,
) -> JSONResponse:
    """The path may be quoted as one segment. All pages show the same commit, whatever is pushed meanwhile."""
    sha = hub.refs.resolve(repository, revision)
    path = path.strip("/")
    items = recent.trees.folders(repository, sha).inside(path, recursive)
    if items is None:
        raise NotThere(
            "entry",
            f"folder {path[:200]!r} not found in {repository.name} at {revision[:100]!r}",
            commit=sha,
        )
    stop = cursor + _page(items[cursor : cursor + (EXPANDED_PAGE if expand else PAGE)])
    headers = {"X-Repo-Commit": sha}
    if stop < len(items):
        here = f"/api/{repository.type}s/{repository.name}/tree/{sha}" + (
            f"/{quote(path, safe='')}" if path else ""
        )
        headers |= next_page(request, options, here, cursor=stop)
    return JSONResponse(_shown(hub, recent, repository, sha, items[cursor:stop], expand), headers=headers)


def _page(items: Sequence[Listed]) -> int:
    """How many of the items are listed at once: their paths, and what else is said of them, have a megabyte at most."""
    sizes = accumulate(len(item.path.encode()) + ITEM for item in items)
    return max(1, sum(size <= LARGEST_PAGE for size in sizes))


async def requested_paths(request: Request) -> tuple[list[str], bool]:
    """`paths` and `expand`, from a form, as clients send it, or from JSON."""
    body = await request.body()
    kind = request.headers.get("content-type", FORM).partition(";")[0].strip().lower()
    try:
        return _from_form(body) if kind == FORM else _from_json(body)
    except (ValueError, RecursionError):
        raise Invalid(f"invalid body {body[:40]!r}: send paths as JSON or as a form") from None


def _from_form(body: bytes) -> tuple[list[str], bool]:
    fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=10 * MOST_PATHS, errors="strict")
    expand = any(key == "expand" and value.lower() in {"true", "1"} for key, value in fields)
    return [value for key, value in fields if key in {"paths", "paths[]"}], expand


def _from_json(body: bytes) -> tuple[list[str], bool]:
    match json.loads(body):
        case {"paths": list(paths), **rest} if all(isinstance(path, str) for path in paths):
            return paths, bool(rest.get("expand"))
        case {"paths": str(path), **rest}:
            return [path], bool(rest.get("expand"))
    raise ValueError


@router.post(
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
    hub: HubDep,
    recent: RecentDep,
    repository: RepositoryDep,
    revision: Segment,
    form: Annotated[tuple[list[str], bool], Depends(requested_paths)],
    _turn: InTurn,
) -> JSONResponse:
    """Missing paths are omitted."""
    paths, expand = form
    if len(paths) > MOST_PATHS:
        raise TooLarge(f"too many paths ({len(paths)}): send at most {MOST_PATHS} in one request")
    sha = hub.refs.resolve(repository, revision)
    folders = recent.trees.folders(repository, sha)
    found = (folders.get(path) for path in dict.fromkeys(path.strip("/") for path in paths) if path)
    items = [item for item in found if item is not None]
    return JSONResponse(_shown(hub, recent, repository, sha, items, expand), headers={"X-Repo-Commit": sha})


def _shown(
    hub: SharedHub, recent: Recent, repository: Repository, sha: str, items: Sequence[Listed], expand: bool
) -> list[Json]:
    if not expand:
        return [listed(item) for item in items]
    last = _last_commits(hub.commits, recent.trees, repository, sha, [item.path for item in items])
    return [repository_json.expanded(listed(item), last.get(item.path)) for item in items]


def listed(item: Listed) -> Json:
    """A file or folder, as clients read it."""
    match item:
        case Entry():
            return repository_json.file(item)
        case Folder(path, oid):
            return repository_json.folder(path, oid)


def _last_commits(
    commits: Commits, trees: RecentTrees, repository: Repository, sha: str, paths: Collection[str]
) -> dict[str, Commit]:
    """The commit at or before `sha` that last changed each path; paths that changed too long ago are omitted."""
    found: dict[str, Commit] = {}
    history = commits.list(repository, sha, 0, MOST_COMMITS)
    after = trees.get(repository, sha) if history else {}
    read = 0
    for commit in history:
        before = {} if commit.parent is None else trees.get(repository, commit.parent)
        changed = _changed(before, after)
        found |= {path: commit for path in paths if path in changed and path not in found}
        read += len(before)
        if read > MOST_ENTRIES or len(found) == len(paths):
            break
        after = before
    return found


def _changed(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> set[str]:
    """The paths of files that differ, and of the folders with them."""
    paths = {path for path, entry in after.items() if path not in before or before[path].oid != entry.oid}
    paths |= before.keys() - after.keys()
    for path in list(paths):
        while (path := path.rpartition("/")[0]) and path not in paths:
            paths.add(path)
    return paths
