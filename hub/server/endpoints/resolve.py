"""File downloads: whole files, ranges and headers.

Files are streamed from the store in blocks, without compression or redirects. User content is sent as an attachment
under a policy that runs nothing, so that it never becomes a page of this hub.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Annotated, TypeAlias
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from kcard.hub.refusals import NotThere
from kcard.hub.repositories.file_entries import pointer
from kcard.hub.repositories.permissions import absent
from kcard.hub.repositories.values import Entry, Repository
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, WebRepository, require_download
from kcard.hub.server.middleware.raw_path import Rest, Segment
from kcard.hub.server.reading.byte_range import Unsatisfiable, matches, wanted
from kcard.hub.server.reading.downloads import counted, counting
from kcard.hub.server.reading.recent import RecentDep
from kcard.hub.server.reading.repository_json import Responses
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["read"], lifespan=counting)

TEXT = frozenset({".csv", ".jinja", ".json", ".jsonl", ".md", ".txt", ".xml", ".yaml", ".yml"})
TEXT_NAMES = frozenset({".gitattributes", ".gitignore", "LICENSE", "README"})
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
    headers = _headers(file) | {"Content-Type": _content_type("x.txt")}
    return Response(pointer(file.entry.sha256, file.entry.size), headers=headers)


def _answer(request: Request, hub: SharedHub, file: ResolvedFile) -> Response:
    entry, sent = file.entry, request.headers
    headers = _headers(file)
    if matches(sent.get("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    if entry.lfs:
        headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(entry.size)}
    head = request.method == "HEAD"
    range_ = None if head else sent.get("range")
    try:
        part = wanted(entry.size, headers["ETag"], range_, sent.get("if-range"))
    except Unsatisfiable:
        return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{entry.size}"})
    headers |= {"Content-Length": str(part.size), "Content-Type": _content_type(entry.path)}
    if part.part:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{entry.size}"
    status = 206 if part.part else 200
    if head or part.size == 0:
        return Response(status_code=status, headers=headers)
    if file.counts and part.start == 0:
        request.app.state.downloads.add(file.repository.id)
    return _Blocks(hub.blobs.read(entry.sha256, part.start, part.stop), status, headers)


class _Blocks(StreamingResponse):
    """Streams blocks of a file, each read in a thread after the client took the one before.

    The first block is read at once, so that a failing store still gets an error status.
    """

    def __init__(self, blocks: Iterator[bytes], status: int, headers: Mapping[str, str]) -> None:
        self._blocks = blocks
        super().__init__(chain([next(blocks)], blocks), status, headers)

    async def stream_response(self, send: Send) -> None:
        """As in Starlette, but closes the file when the client disconnects."""
        try:
            await super().stream_response(send)
        finally:
            if isinstance(self._blocks, Generator):
                self._blocks.close()


def _headers(file: ResolvedFile) -> dict[str, str]:
    entry = file.entry
    name = PurePosixPath(entry.path).name
    return {
        "ETag": f'"{entry.sha256 if entry.lfs else entry.oid}"',
        "X-Repo-Commit": file.commit,
        "Accept-Ranges": "bytes",
        "Cache-Control": "no-cache",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Vary": "Authorization, Cookie",
        "X-Content-Type-Options": "nosniff",
    }


def _content_type(path: str) -> str:
    """Plain text or bytes, whatever the extension: nothing that a browser would run."""
    name = PurePosixPath(path)
    text = name.suffix.lower() in TEXT or name.name in TEXT_NAMES
    return "text/plain; charset=utf-8" if text else "application/octet-stream"
