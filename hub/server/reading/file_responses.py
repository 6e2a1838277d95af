"""Responses with a file: its headers, the range that the client wants, and its bytes.

Files are streamed in blocks, without compression or redirects. User content is sent as an attachment under a policy
that runs nothing, so that it never becomes a page of this hub.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from urllib.parse import quote

from fastapi import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from kcard.hub.repositories.values import Entry
from kcard.hub.server.reading.byte_range import Unsatisfiable, matches, wanted

__all__ = ["Blocks", "Plan", "content_type", "file_headers", "planned"]

TEXT = frozenset({".csv", ".jinja", ".json", ".jsonl", ".md", ".txt", ".xml", ".yaml", ".yml"})
TEXT_NAMES = frozenset({".gitattributes", ".gitignore", "LICENSE", "README"})


@dataclass(frozen=True)
class Plan:
    """A response with the bytes of a file from `start` up to `stop`."""

    status: int
    headers: Mapping[str, str]
    start: int
    stop: int


def planned(request: Request, entry: Entry, commit: str) -> Response | Plan:
    """The response for a file of a commit; a plan if it has bytes of the file."""
    sent, headers = request.headers, file_headers(entry, commit)
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
    headers |= {"Content-Length": str(part.size), "Content-Type": content_type(entry.path)}
    if part.part:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{entry.size}"
    status = 206 if part.part else 200
    if head or part.size == 0:
        return Response(status_code=status, headers=headers)
    return Plan(status, headers, part.start, part.stop)


class Blocks(StreamingResponse):
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


def file_headers(entry: Entry, commit: str) -> dict[str, str]:
    """The headers of every response for a file of a commit."""
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
    """Plain text or bytes, whatever the extension: nothing that a browser would run."""
    name = PurePosixPath(path)
    text = name.suffix.lower() in TEXT or name.name in TEXT_NAMES
    return "text/plain; charset=utf-8" if text else "application/octet-stream"
