"""The files themselves: whole, in parts, or only what is known of them.

Nothing here is compressed, redirected or rebuilt: a file goes from the store to the client in blocks. What people
uploaded is never shown as a page of this hub: it comes as an attachment, with nothing allowed to run in it.
"""

from pathlib import PurePosixPath
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from kcard.hub.repositories.git_oid import pointer
from kcard.hub.repositories.rights import absent
from kcard.hub.server.asking import MaybeIdentity, TheHub
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.reading.blocks import Blocks
from kcard.hub.server.reading.byte_range import Unsatisfiable, matches, wanted
from kcard.hub.server.reading.downloads import counting
from kcard.hub.server.reading.repository_json import Answers
from kcard.hub.server.reading.resolved import DatasetFile, ModelFile, ResolvedFile
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(tags=["read"], lifespan=counting)

TEXT = frozenset({".csv", ".jinja", ".json", ".jsonl", ".md", ".txt", ".xml", ".yaml", ".yml"})
TEXT_NAMES = frozenset({".gitattributes", ".gitignore", "LICENSE", "README"})
ANSWERS: Answers = {
    200: {"description": "The file"},
    206: {"description": "The bytes that Range asked for"},
    304: {"description": "The client has it: If-None-Match"},
    401: {"description": "Private or gated, and nobody is logged in"},
    403: {"description": "Gated, and access was not granted"},
    404: {"description": "No such repository, revision or file: X-Error-Code says which"},
    416: {"description": "The range lies outside the file"},
}


@router.head("/datasets/{namespace}/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
@router.get(
    "/datasets/{namespace}/{name}/resolve/{revision}/{path:path}",
    summary="Download a file of a dataset",
    response_class=Response,
    responses=ANSWERS,
)
def dataset(request: Request, hub: TheHub, file: DatasetFile) -> Response:
    """HEAD tells its size and hash."""
    return _answer(request, hub, file)


@router.head("/{namespace}/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
@router.get(
    "/{namespace}/{name}/resolve/{revision}/{path:path}",
    summary="Download a file of a model",
    response_class=Response,
    responses=ANSWERS,
)
def model(request: Request, hub: TheHub, file: ModelFile) -> Response:
    """HEAD tells its size and hash."""
    return _answer(request, hub, file)


@router.head("/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
@router.get("/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
def without_namespace(name: Segment, identity: MaybeIdentity) -> Response:
    """Clients ask so for gpt2: no repository here is without a namespace."""
    raise absent(name, identity)


@router.get("/datasets/{namespace}/{name}/raw/{revision}/{path:path}", include_in_schema=False)
def dataset_raw(request: Request, hub: TheHub, file: DatasetFile) -> Response:
    """As `model_raw`."""
    return _raw(request, hub, file)


@router.get(
    "/{namespace}/{name}/raw/{revision}/{path:path}",
    summary="Download a file as git keeps it",
    response_class=Response,
    responses=ANSWERS,
)
def model_raw(request: Request, hub: TheHub, file: ModelFile) -> Response:
    """Of a large file, its LFS pointer."""
    return _raw(request, hub, file)


def _raw(request: Request, hub: SharedHub, file: ResolvedFile) -> Response:
    if not file.entry.lfs:
        return _answer(request, hub, file)
    return Response(
        pointer(file.entry.sha256, file.entry.size), headers=_headers(file) | {"Content-Type": _kind("x.txt")}
    )


def _answer(request: Request, hub: SharedHub, file: ResolvedFile) -> Response:
    entry, asked = file.entry, request.headers
    headers = _headers(file)
    if matches(asked.get("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    if entry.lfs:
        headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(entry.size)}
    head = request.method == "HEAD"
    try:
        part = wanted(
            entry.size, headers["ETag"], None if head else asked.get("range"), asked.get("if-range")
        )
    except Unsatisfiable:
        return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{entry.size}"})
    headers |= {"Content-Length": str(part.size), "Content-Type": _kind(entry.path)}
    if part.part:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{entry.size}"
    status = 206 if part.part else 200
    if head or part.size == 0:
        return Response(status_code=status, headers=headers)
    if file.counts and part.start == 0:
        request.app.state.downloads.add(file.repository.id)
    return Blocks(hub.blobs.read(entry.sha256, part.start, part.stop), status, headers)


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
        "Vary": "Authorization",
        "X-Content-Type-Options": "nosniff",
    }


def _kind(path: str) -> str:
    """Text is plain text, whatever its name says: nothing that a browser would run."""
    name = PurePosixPath(path)
    text = name.suffix.lower() in TEXT or name.name in TEXT_NAMES
    return "text/plain; charset=utf-8" if text else "application/octet-stream"
