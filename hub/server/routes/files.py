"""Downloads of files: ranges, headers, counts.

Files are streamed in blocks, without compression or redirects. User content is sent as an attachment under a policy
that runs nothing, so that it never becomes a page of this hub.
"""

import asyncio
import contextlib
import logging
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
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
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, Segment, WebRepository, require_download
from kcard.hub.services import HubServices
from kcard.hub.trees import lfs_pointer
from kcard.hub.values import Entry

# A single range (RFC 9110, section 14). Several ranges, like an invalid one, may be answered with the whole file.
RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-([0-9]{1,18}))", re.ASCII)
TAG = re.compile(r'(?:W/)?("[^"]*")')
TEXT_SUFFIXES = frozenset({".csv", ".jinja", ".json", ".jsonl", ".md", ".txt", ".xml", ".yaml", ".yml"})
TEXT_NAMES = frozenset({".gitattributes", ".gitignore", "LICENSE", "README"})
TEXT = "text/plain; charset=utf-8"


class Unsatisfiable(Exception):
    """The range is outside the file."""


def resolve_range(
    size: int, etag: str, range_: str | None, if_range: str | None = None
) -> tuple[int, int] | None:
    """Return the first byte to send of a file with that size and quoted etag, and the one after the last.

    None: all of it, without a valid range or if If-Range has another etag. Raises Unsatisfiable.
    """
    match = RANGE.fullmatch(range_.strip()) if range_ is not None else None
    if match is None or (if_range is not None and if_range.strip() != etag):
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, stop = max(0, size - int(suffix)), size
    elif last is None:
        start, stop = int(first), size
    else:
        start, stop = int(first), min(size, int(last) + 1)
        if int(last) < start:
            return None  # invalid, so it is ignored
    if start >= stop:
        raise Unsatisfiable
    return start, stop


def is_unchanged(if_none_match: str | None, etag: str) -> bool:
    """Return whether If-None-Match (RFC 9110, section 13) says that the client has the file."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or etag in TAG.findall(if_none_match)


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
    if name.suffix.lower() in TEXT_SUFFIXES or name.name in TEXT_NAMES:
        return TEXT
    return "application/octet-stream"


# A download is a GET, from the first byte, of the small file that clients read first whenever they load the model: the
# first of these in the commit. Other files and conditional requests do not count.
COUNTED_FILES = ("config.json", "adapter_config.json", "kcard.json")
FLUSH_SECONDS = 5.0

log = logging.getLogger("kcard.server")


class Downloads:
    """Counts by repository id, collected in memory; `write` adds them to the database. Thread-safe."""

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
    """Provide `app.state.downloads` during the lifespan of the server, and write it every few seconds."""
    downloads = Downloads(app.state.hub.repositories.count_download)
    app.state.downloads = downloads

    async def flush_repeatedly() -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
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
    path: Segment,
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
    counted = [name for name in COUNTED_FILES if name in tree]
    return ResolvedFile(repository, sha, entry, counts=path in counted[:1])


FileDep: TypeAlias = Annotated[ResolvedFile, Depends(resolve_file)]


@router.head(MODEL + RESOLVE, include_in_schema=False)
@router.head(DATASET + RESOLVE, include_in_schema=False)
@router.get(MODEL + RESOLVE)
@router.get(DATASET + RESOLVE)
def resolve(request: Request, hub: HubDep, file: FileDep) -> Response:
    """Download a file. HEAD returns its size and hash."""
    return _send_file(request, hub, file)


@router.head("/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
@router.get("/{name}/resolve/{revision}/{path:path}", include_in_schema=False)
def without_namespace(name: Segment, identity: OptionalIdentity) -> Response:
    """Clients send this for names such as gpt2; every repository of this hub has a namespace."""
    raise repository_not_found(name, identity)


@router.get(MODEL + RAW)
@router.get(DATASET + RAW, include_in_schema=False)
def raw(request: Request, hub: HubDep, file: FileDep) -> Response:
    """Download a file as stored by git: for a large file, its LFS pointer."""
    if not file.entry.lfs:
        return _send_file(request, hub, file)
    headers = file_headers(file.entry, file.commit) | {"Content-Type": TEXT}
    return Response(lfs_pointer(file.entry.sha256, file.entry.size), headers=headers)


def _send_file(request: Request, hub: HubServices, file: ResolvedFile) -> Response:
    entry, sent = file.entry, request.headers
    is_head = request.method == "HEAD"
    headers = file_headers(entry, file.commit)
    if is_unchanged(sent.get("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    if entry.lfs:
        headers |= {"X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(entry.size)}
    # The whole file, or a part of it.
    status, start, stop = 200, 0, entry.size
    if not is_head:
        try:
            part = resolve_range(entry.size, headers["ETag"], sent.get("range"), sent.get("if-range"))
        except Unsatisfiable:
            headers["Content-Range"] = f"bytes */{entry.size}"
            return Response(status_code=416, headers=headers)
        if part is not None:
            status, (start, stop) = 206, part
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{entry.size}"
    headers |= {"Content-Length": str(stop - start), "Content-Type": content_type(entry.path)}
    if is_head or start == stop:
        return Response(status_code=status, headers=headers)
    if file.counts and start == 0:
        request.app.state.downloads.add(file.repository.id)
    return Blocks(hub.blobs.read(entry.sha256, start, stop), status, headers)
