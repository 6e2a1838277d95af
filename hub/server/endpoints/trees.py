"""Files and folders of a revision."""

import json
from collections.abc import Sequence
from typing import Annotated
from urllib.parse import parse_qsl, quote

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import JSONResponse

from kcard.hub.refusals import Invalid, NotThere, TooLarge
from kcard.hub.repositories.values import Entry, Repository
from kcard.hub.server.asking import Asked, Options, TheHub, base_url
from kcard.hub.server.middleware.raw_path import Rest, Segment
from kcard.hub.server.reading import repository_json
from kcard.hub.server.reading.folders import Folder, Listed, contents, folders
from kcard.hub.server.reading.last_commits import last_commits
from kcard.hub.server.reading.linked import next_page
from kcard.hub.server.reading.repository_json import Answers, Json
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["read"])

PAGE, EXPANDED_PAGE = 1000, 100
MOST_PATHS = 1000
FORM = "application/x-www-form-urlencoded"
ABSENT: Answers = {404: {"description": "No such repository, revision or folder: X-Error-Code says which"}}


@router.get(
    "/api/{types}/{namespace}/{name}/tree/{revision}",
    summary="List the files of a revision",
    responses={200: {"description": "Files and folders; Link has the next page"}, **ABSENT},
)
def root(
    request: Request,
    hub: TheHub,
    options: Options,
    repository: Asked,
    revision: Segment,
    recursive: bool = False,
    expand: bool = False,
    cursor: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
) -> JSONResponse:
    """`expand` adds the last commit of each."""
    return tree(request, hub, options, repository, revision, "", recursive, expand, cursor)


@router.get(
    "/api/{types}/{namespace}/{name}/tree/{revision}/{path:path}",
    summary="List a folder of a revision",
    responses={200: {"description": "Files and folders; Link has the next page"}, **ABSENT},
)
def tree(
    request: Request,
    hub: TheHub,
    options: Options,
    repository: Asked,
    revision: Segment,
    path: Rest,
    recursive: bool = False,
    expand: bool = False,
    cursor: Annotated[int, Query(ge=0, le=1_000_000_000)] = 0,
) -> JSONResponse:
    """The path is one quoted segment, or several. Later pages are of the same commit, whatever comes meanwhile."""
    sha = hub.refs.resolve(repository, revision)
    path = path.strip("/")
    items = contents(hub.commits.tree(repository, sha), path, recursive)
    if items is None:
        raise NotThere(
            "entry",
            f"there is no folder {path[:200]!r} in {repository.name} at {revision[:100]!r}",
            commit=sha,
        )
    stop = cursor + (EXPANDED_PAGE if expand else PAGE)
    headers = {"X-Repo-Commit": sha}
    if stop < len(items):
        here = f"/api/{repository.type}s/{repository.name}/tree/{sha}" + (
            f"/{quote(path, safe='')}" if path else ""
        )
        query = request.query_params.multi_items()
        headers |= next_page(base_url(request, options), here, query, cursor=stop)
    return JSONResponse(_shown(hub, repository, sha, items[cursor:stop], expand), headers=headers)


async def _asked_paths(request: Request) -> tuple[list[str], bool]:
    """The paths and `expand` of a form, which clients send, or of JSON."""
    body = await request.body()
    kind = request.headers.get("content-type", FORM).partition(";")[0].strip().lower()
    try:
        return _from_form(body) if kind == FORM else _from_json(body)
    except (ValueError, RecursionError):
        raise Invalid(
            f"the paths are asked for as JSON or as a form, which this is not: {body[:40]!r}"
        ) from None


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
    responses={200: {"description": "Those of the paths that are there"}, **ABSENT},
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
    hub: TheHub,
    repository: Asked,
    revision: Segment,
    asked: Annotated[tuple[list[str], bool], Depends(_asked_paths)],
) -> JSONResponse:
    """Paths that are not there are left out."""
    paths, expand = asked
    if len(paths) > MOST_PATHS:
        raise TooLarge(f"{len(paths)} paths: ask for at most {MOST_PATHS} at once")
    sha = hub.refs.resolve(repository, revision)
    tree = hub.commits.tree(repository, sha)
    every: dict[str, Listed] = {**folders(tree), **tree}
    items = [
        every[path] for path in dict.fromkeys(path.strip("/") for path in paths) if path in every and path
    ]
    return JSONResponse(_shown(hub, repository, sha, items, expand), headers={"X-Repo-Commit": sha})


def _shown(
    hub: SharedHub, repository: Repository, sha: str, items: Sequence[Listed], expand: bool
) -> list[Json]:
    if not expand:
        return [_json(item) for item in items]
    last = last_commits(hub.commits, repository, sha, [item.path for item in items])
    return [repository_json.expanded(_json(item), last.get(item.path)) for item in items]


def _json(item: Listed) -> Json:
    match item:
        case Entry():
            return repository_json.file(item)
        case Folder(path, oid):
            return repository_json.folder(path, oid)
