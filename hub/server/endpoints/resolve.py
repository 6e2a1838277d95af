"""File downloads: whole files, ranges and headers."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from kcard.hub.refusals import NotThere
from kcard.hub.repositories.file_entries import pointer
from kcard.hub.repositories.permissions import absent
from kcard.hub.repositories.values import Entry, Repository
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, WebRepository, require_download
from kcard.hub.server.middleware.raw_path import Rest, Segment
from kcard.hub.server.reading.downloads import counted, counting
from kcard.hub.server.reading.file_responses import Blocks, content_type, file_headers, planned
from kcard.hub.server.reading.recent import RecentDep
from kcard.hub.server.reading.repository_json import Responses
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["read"], lifespan=counting)

MODEL, DATASET = "/{namespace}/{name}", "/datasets/{namespace}/{name}"
RESOLVE, RAW = "/resolve/{revision}/{path:path}", "/raw/{revision}/{path:path}"
RESPONSES: Responses = {
    200: {"description": "The file"},
    206: {"description": "The requested range"},
    304: {"description": "Unchanged (If-None-Match)"},
    401: {"description": "Private or gated, without a token"},
    403: {"description": "Gated, without access"},
    404: {"description": "No such repository, revision or file: see X-Error-Code"},
    416: {"description": "The range is outside the file"},
}


@dataclass(frozen=True)
class ResolvedFile:
    """A file of a commit; `counts`: whether its GETs are downloads."""

    repository: Repository
    commit: str
    entry: Entry
    counts: bool


def _resolved(
    hub: HubDep,
    recent: RecentDep,
    identity: OptionalIdentity,
    repository: WebRepository,
    revision: Segment,
    path: Rest,
) -> ResolvedFile:
    require_download(hub, identity, repository)
    sha = hub.refs.resolve(repository, revision)
    tree = recent.trees.get(repository, sha)
    entry = tree.get(path)
    if entry is None:
        # Given the commit, clients remember that the file does not exist.
        raise NotThere(
            "entry", f"file {path[:200]!r} not found in {repository.name} at {revision[:100]!r}", commit=sha
        )
    return ResolvedFile(repository, sha, entry, counts=counted(tree) == path)


FileDep: TypeAlias = Annotated[ResolvedFile, Depends(_resolved)]


@router.head(MODEL + RESOLVE, include_in_schema=False)
@router.head(DATASET + RESOLVE, include_in_schema=False)
@router.get(
    MODEL + RESOLVE,
    summary="Download a file of a model",
    response_class=Response,
    responses=RESPONSES,
)
@router.get(
    DATASET + RESOLVE,
    summary="Download a file of a dataset",
    response_class=Response,
    responses=RESPONSES,
)
def resolve(request: Request, hub: HubDep, file: FileDep) -> Response:
    """HEAD returns its size and hash."""
    return _answer(request, hub, file)


@router.head("/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
@router.get("/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
def without_namespace(name: Segment, identity: OptionalIdentity) -> Response:
    """Clients send this for names such as gpt2; every repository of this hub has a namespace."""
    raise absent(name, identity)


@router.get(
    MODEL + RAW,
    summary="Download a file as stored by git",
    response_class=Response,
    responses=RESPONSES,
)
@router.get(DATASET + RAW, include_in_schema=False)
def raw(request: Request, hub: HubDep, file: FileDep) -> Response:
    """For a large file, its LFS pointer."""
    if not file.entry.lfs:
        return _answer(request, hub, file)
    headers = file_headers(file.entry, file.commit) | {"Content-Type": content_type("x.txt")}
    return Response(pointer(file.entry.sha256, file.entry.size), headers=headers)


def _answer(request: Request, hub: SharedHub, file: ResolvedFile) -> Response:
    plan = planned(request, file.entry, file.commit)
    if isinstance(plan, Response):
        return plan
    if file.counts and plan.start == 0:
        request.app.state.downloads.add(file.repository.id)
    return Blocks(hub.blobs.read(file.entry.sha256, plan.start, plan.stop), plan.status, plan.headers)
