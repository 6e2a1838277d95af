"""Files and folders of a revision: listings, and descriptions of paths."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import JSONResponse

from kcard.hub.db.models import Commit, Repository
from kcard.hub.errors import Invalid, NotFound, TooLarge
from kcard.hub.history import Commits
from kcard.hub.server import responses
from kcard.hub.server.caches import Caches, CachesDep
from kcard.hub.server.concurrency import EXPENSIVE, ExpensiveTurn
from kcard.hub.server.dependencies import HubDep, OptionsDep, RepositoryDep, Segment
from kcard.hub.server.folders import Folder, TreeItem
from kcard.hub.server.responses import Json, format_time, link_to_next_page
from kcard.hub.services import HubServices

router = APIRouter(tags=["read"])

MAX_ITEMS, MAX_EXPANDED_ITEMS = 1000, 100  # of a page
MAX_PAGE_BYTES, ITEM_BYTES = 1 << 20, 300  # the latter without its path
MAX_PATHS = 1000
# Limits of the search for the last commit of a path: commits, and files in all of them. 20,000 files take 0.1 s.
MAX_COMMITS, MAX_ENTRIES = 100, 20_000


@router.get("/api/{types}/{namespace}/{name}/tree/{revision}", dependencies=[EXPENSIVE])
@router.get("/api/{types}/{namespace}/{name}/tree/{revision}/{path:path}", dependencies=[EXPENSIVE])
def tree(
    request: Request,
    hub: HubDep,
    caches: CachesDep,
    options: OptionsDep,
    repository: RepositoryDep,
    revision: Segment,
    path: Segment = "",
    recursive: bool = False,
    expand: bool = False,
    cursor: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
) -> JSONResponse:
    """List a folder of a revision; `expand` adds the last commit of each item.

    The path may be quoted as one segment. All pages show the same commit, even if the branch moves on.
    """
    sha = hub.refs.resolve(repository, revision)
    path = path.strip("/")
    items = caches.folders(repository, sha).inside(path, recursive)
    if items is None:
        raise NotFound(
            "entry", f"folder {path[:200]!r} not found in {repository.name} at {revision[:100]!r}", commit=sha
        )
    # A page has at least one item, and at most a megabyte of paths and their properties.
    page: list[TreeItem] = []
    size = 0
    for item in items[cursor : cursor + (MAX_EXPANDED_ITEMS if expand else MAX_ITEMS)]:
        size += len(item.path.encode()) + ITEM_BYTES
        if page and size > MAX_PAGE_BYTES:
            break
        page.append(item)
    headers = {"X-Repo-Commit": sha}
    stop = cursor + max(1, len(page))
    if stop < len(items):
        here = f"/api/{repository.type}s/{repository.name}/tree/{sha}"
        if path:
            here += f"/{quote(path, safe='')}"
        headers |= link_to_next_page(request, options, here, cursor=stop)
    return JSONResponse(_describe_items(hub, caches, repository, sha, page, expand), headers=headers)


async def read_paths(request: Request) -> tuple[list[str], bool]:
    """Read `paths` and `expand` from a form, as clients send it."""
    body = await request.body()
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=10 * MAX_PATHS, errors="strict"
        )
    except ValueError:
        raise Invalid(f"invalid body {body[:40]!r}: send paths as a form") from None
    expand = any(key == "expand" and value.lower() in {"true", "1"} for key, value in fields)
    return [value for key, value in fields if key in {"paths", "paths[]"}], expand


@router.post("/api/{types}/{namespace}/{name}/paths-info/{revision}")
def paths_info(
    form: Annotated[tuple[list[str], bool], Depends(read_paths)],  # received before the token is checked
    hub: HubDep,
    caches: CachesDep,
    repository: RepositoryDep,
    revision: Segment,
    _turn: ExpensiveTurn,
) -> JSONResponse:
    """Describe files and folders of a revision. Missing paths are omitted."""
    paths, expand = form
    if len(paths) > MAX_PATHS:
        raise TooLarge(f"too many paths ({len(paths)}): send at most {MAX_PATHS} in one request")
    sha = hub.refs.resolve(repository, revision)
    folders = caches.folders(repository, sha)
    items: dict[str, TreeItem] = {}
    for path in paths:
        item = folders.get(path.strip("/"))
        if item is not None and item.path:
            items[item.path] = item
    described = _describe_items(hub, caches, repository, sha, [*items.values()], expand)
    return JSONResponse(described, headers={"X-Repo-Commit": sha})


def _describe_items(
    hub: HubServices,
    caches: Caches,
    repository: Repository,
    sha: str,
    items: Sequence[TreeItem],
    expand: bool,
) -> list[Json]:
    last: dict[str, Commit] = {}
    if expand:
        last = _find_last_commits(hub.commits, caches, repository, sha, [item.path for item in items])
    described = []
    for item in items:
        details: dict[str, Any]
        if isinstance(item, Folder):
            details = {"type": "directory", "oid": item.oid, "size": 0, "path": item.path}
        else:
            details = responses.describe_file(item)
        commit = last.get(item.path)
        if commit is not None:
            details["lastCommit"] = {
                "id": commit.sha,
                "title": commit.title,
                "date": format_time(commit.date),
            }
        if expand and not isinstance(item, Folder):
            details["securityFileStatus"] = responses.CHECKED_SECURITY
        described.append(details)
    return described


def _find_last_commits(
    commits: Commits, caches: Caches, repository: Repository, sha: str, paths: Collection[str]
) -> dict[str, Commit]:
    """Return the commit at or before `sha` that last changed each path, omitting paths that changed too long ago."""
    last: dict[str, Commit] = {}
    history = commits.list(repository, sha, MAX_COMMITS)
    after = caches.tree(repository, sha) if history else {}
    read = 0
    for commit in history:
        before = {} if commit.parent is None else caches.tree(repository, commit.parent)
        # The paths of files that differ, and of the folders with them.
        changed = before.keys() - after.keys()
        for path, entry in after.items():
            if path not in before or before[path].oid != entry.oid:
                changed.add(path)
        for path in list(changed):
            folder = path.rpartition("/")[0]
            while folder and folder not in changed:
                changed.add(folder)
                folder = folder.rpartition("/")[0]
        for path in paths:
            if path in changed:
                last.setdefault(path, commit)
        read += len(before)
        if read > MAX_ENTRIES or len(last) == len(paths):
            break
        after = before
    return last
