"""Downloads of files: ranges, headers, counts."""

import asyncio
import contextlib
import logging
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import Annotated, TypeAlias
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from kcard.hub.db.models import Repository
from kcard.hub.errors import NotFound
from kcard.hub.permissions import repository_not_found
from kcard.hub.server.caches import CachesDep
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    RestOfPath,
    Segment,
    WebRepository,
    require_download,
)
from kcard.hub.server.responses import Responses
from kcard.hub.services import HubServices
from kcard.hub.trees import lfs_pointer
from kcard.hub.values import Entry

# The headers Range, If-Range and If-None-Match (RFC 9110, sections 13 and 14).

# A single range. Several ranges, like an invalid one, may be answered with the whole file.
RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))", re.ASCII)
TAG = re.compile(r'(?:W/)?("[^"]*")')


class Unsatisfiable(Exception):
    """The range is outside the file."""


@dataclass(frozen=True)
class ByteRange:
    """The bytes from `start` up to but excluding `stop`; `part`: whether a range was requested."""

    start: int
    stop: int
    part: bool

    @property
    def size(self) -> int:
        return self.stop - self.start


def resolve_range(size: int, etag: str, range_: str | None, if_range: str | None = None) -> ByteRange:
    """Return which bytes of a file with that size and quoted etag to send: all of it if If-Range has another etag.

    Raises Unsatisfiable.
    """
    match = RANGE.fullmatch(range_.strip()) if range_ is not None else None
    if match is None or (if_range is not None and if_range.strip() != etag):
        return ByteRange(0, size, part=False)
    first, last, suffix = match.groups()
    if suffix is not None:
        start, stop = max(0, size - int(suffix)), size
    else:
        start = int(first)
        stop = size if last is None else min(size, int(last) + 1)
        if last is not None and int(last) < start:
            return ByteRange(0, size, part=False)  # invalid, so it is ignored
    if start >= stop:
        raise Unsatisfiable
    return ByteRange(start, stop, part=True)


def is_unchanged(if_none_match: str | None, etag: str) -> bool:
    """Return whether If-None-Match says that the client has the file."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in TAG.findall(if_none_match)


# Responses with a file: its headers, the requested range, and its bytes.
#
# Files are streamed in blocks, without compression or redirects. User content is sent as an attachment under a policy
# that runs nothing, so that it never becomes a page of this hub.

TEXT = frozenset({".csv", ".jinja", ".json", ".jsonl", ".md", ".txt", ".xml", ".yaml", ".yml"})
TEXT_NAMES = frozenset({".gitattributes", ".gitignore", "LICENSE", "README"})


@dataclass(frozen=True)
class DownloadPlan:
    """A response with the bytes of a file from `start` up to `stop`."""

    status: int
    headers: Mapping[str, str]
    start: int
    stop: int


def plan_response(request: Request, entry: Entry, commit: str) -> Response | DownloadPlan:
    """Return the response for a file of a commit, or a plan if the response has bytes of the file."""
    sent, headers = request.headers, file_headers(entry, commit)
    if is_unchanged(sent.get("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    if entry.lfs:
        headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(entry.size)}
    head = request.method == "HEAD"
    range_ = None if head else sent.get("range")
    try:
        part = resolve_range(entry.size, headers["ETag"], range_, sent.get("if-range"))
    except Unsatisfiable:
        return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{entry.size}"})
    headers |= {"Content-Length": str(part.size), "Content-Type": content_type(entry.path)}
    if part.part:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{entry.size}"
    status = 206 if part.part else 200
    if head or part.size == 0:
        return Response(status_code=status, headers=headers)
    return DownloadPlan(status, headers, part.start, part.stop)


class Blocks(StreamingResponse):
    """Streams blocks of a file; each is read in a thread after the client has received the one before.

    The first block is read at once, so that a failing store still gets an error status.
    """

    def __init__(self, blocks: Iterator[bytes], status: int, headers: Mapping[str, str]) -> None:
        self._blocks = blocks
        super().__init__(chain([next(blocks)], blocks), status, headers)

    async def stream_response(self, send: Send) -> None:
        """Stream as Starlette does, but close the file on disconnection."""
        try:
            await super().stream_response(send)
        finally:
            if isinstance(self._blocks, Generator):
                self._blocks.close()


def file_headers(entry: Entry, commit: str) -> dict[str, str]:
    """Return the headers of every response for a file of a commit."""
    name = PurePosixPath(entry.path).name
    return {
        "ETag": f'"{entry.sha256 if entry.lfs else entry.oid}"',
        "X-Repo-Commit": commit,
        "Accept-Ranges": "bytes",
        "Cache-Control": "no-cache",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Vary": "Authorization, Cookie",
        "X-Content-Type-Options": "nosniff",
    }


def content_type(path: str) -> str:
    """Return the type of plain text or of bytes, whatever the extension: never one that a browser would run."""
    name = PurePosixPath(path)
    text = name.suffix.lower() in TEXT or name.name in TEXT_NAMES
    return "text/plain; charset=utf-8" if text else "application/octet-stream"


# Download counts, collected in memory and written every few seconds and at shutdown.
#
# A download is a GET, from the first byte, of the small file that clients read first whenever they load the model.
# Other files and conditional requests do not count.

EVERY_SECONDS = 5.0
# The first of these in a commit is the file whose GETs count.
COUNTED = ("config.json", "adapter_config.json", "kcard.json")

log = logging.getLogger("kcard.server")


def find_counted_path(tree: Container[str]) -> str | None:
    """Return the path whose GETs count as downloads of a commit with these paths; None: none does."""
    return next((path for path in COUNTED if path in tree), None)


class Downloads:
    """Counts by repository id; `write` adds them to the database. Thread-safe."""

    def __init__(self, write: Callable[[Mapping[int, int]], object]) -> None:
        self._write = write
        self._counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, repository_id: int) -> None:
        """Count a download."""
        with self._lock:
            self._counts[repository_id] += 1

    def flush(self) -> None:
        """Write the counts; if that fails, keep them for the next time."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        if not counts:
            return
        try:
            self._write(counts)
        except Exception:  # whatever fails, the server goes on counting
            log.warning("can't write download counts: trying again later", exc_info=True)
            with self._lock:
                self._counts.update(counts)


@contextlib.asynccontextmanager
async def count_downloads(app: FastAPI) -> AsyncIterator[None]:
    """Provide `app.state.downloads` during the lifespan of the server."""
    downloads = Downloads(app.state.hub.repositories.count_download)
    app.state.downloads = downloads

    async def flush_repeatedly() -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await asyncio.to_thread(downloads.flush)

    task = asyncio.create_task(flush_repeatedly())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.to_thread(downloads.flush)


router = APIRouter(tags=["read"], lifespan=count_downloads)

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
    """A file of a commit; `counts`: whether its GETs count as downloads."""

    repository: Repository
    commit: str
    entry: Entry
    counts: bool


def resolve_file(
    hub: HubDep,
    caches: CachesDep,
    identity: OptionalIdentity,
    repository: WebRepository,
    revision: Segment,
    path: RestOfPath,
) -> ResolvedFile:
    require_download(hub, identity, repository)
    sha = hub.refs.resolve(repository, revision)
    tree = caches.tree(repository, sha)
    entry = tree.get(path)
    if entry is None:
        # With the commit, clients can cache that the file does not exist.
        raise NotFound(
            "entry", f"file {path[:200]!r} not found in {repository.name} at {revision[:100]!r}", commit=sha
        )
    return ResolvedFile(repository, sha, entry, counts=find_counted_path(tree) == path)


FileDep: TypeAlias = Annotated[ResolvedFile, Depends(resolve_file)]


@router.head(MODEL + RESOLVE, include_in_schema=False)
@router.head(DATASET + RESOLVE, include_in_schema=False)
@router.get(
    MODEL + RESOLVE, summary="Download a file of a model", response_class=Response, responses=RESPONSES
)
@router.get(
    DATASET + RESOLVE, summary="Download a file of a dataset", response_class=Response, responses=RESPONSES
)
def resolve(request: Request, hub: HubDep, file: FileDep) -> Response:
    """HEAD returns its size and hash."""
    return _send_file(request, hub, file)


@router.head("/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
@router.get("/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
def without_namespace(name: Segment, identity: OptionalIdentity) -> Response:
    """Clients send this for names such as gpt2; every repository of this hub has a namespace."""
    raise repository_not_found(name, identity)


@router.get(
    MODEL + RAW, summary="Download a file as stored by git", response_class=Response, responses=RESPONSES
)
@router.get(DATASET + RAW, include_in_schema=False)
def raw(request: Request, hub: HubDep, file: FileDep) -> Response:
    """For a large file, its LFS pointer."""
    if not file.entry.lfs:
        return _send_file(request, hub, file)
    headers = file_headers(file.entry, file.commit) | {"Content-Type": content_type("x.txt")}
    return Response(lfs_pointer(file.entry.sha256, file.entry.size), headers=headers)


def _send_file(request: Request, hub: HubServices, file: ResolvedFile) -> Response:
    plan = plan_response(request, file.entry, file.commit)
    if isinstance(plan, Response):
        return plan
    if file.counts and plan.start == 0:
        request.app.state.downloads.add(file.repository.id)
    return Blocks(hub.blobs.read(file.entry.sha256, plan.start, plan.stop), plan.status, plan.headers)
