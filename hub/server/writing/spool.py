"""Streams request bodies to disk, hashing and counting them.

A thread hashes and writes one block while the next is received.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread
from starlette.requests import ClientDisconnect, Request

from kcard.hub.refusals import Invalid, TooLarge
from kcard.hub.server.limits import lift
from kcard.hub.store.disk import explained, partial_folder

__all__ = ["Spooled", "spooled"]

BLOCK = 1 << 20  # bytes; each upload has two blocks in memory


@dataclass(frozen=True)
class Spooled:
    """A request's body as a file, deleted at the end of the block unless it was moved."""

    path: Path
    sha256: str
    size: int


@asynccontextmanager
async def spooled(request: Request, partial: Path, limit: int) -> AsyncIterator[Spooled]:
    """The body of a request in its own folder under `partial`, flushed to disk.

    Raises TooLarge as soon as the body has, or declares, more than `limit` bytes.
    """
    lift(request)
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"request body too large: {declared} bytes, the limit is {limit}")
    with explained("can't store the upload"), partial_folder(partial) as folder:
        yield await _received(request, folder / "body", limit)


async def _received(request: Request, path: Path, limit: int) -> Spooled:
    digest, size = hashlib.sha256(), 0
    writing: asyncio.Future[None] | None = None
    with path.open("xb") as file:

        def write(pieces: list[bytes]) -> None:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)

        def finish() -> None:
            file.flush()
            os.fsync(file.fileno())

        try:
            async for pieces in _blocks(request):
                size += sum(map(len, pieces))
                if size > limit:
                    raise TooLarge(f"request body too large: the limit is {limit} bytes")
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(to_thread.run_sync(write, pieces))
        except ClientDisconnect:
            raise Invalid("the client disconnected before the end of the request") from None
        finally:
            if writing is not None:
                await writing
        await to_thread.run_sync(finish)
    return Spooled(path, digest.hexdigest(), size)


async def _blocks(request: Request) -> AsyncIterator[list[bytes]]:
    """The body in blocks of about BLOCK bytes, each a list of chunks as received."""
    pieces: list[bytes] = []
    held = 0
    async for piece in request.stream():
        pieces.append(piece)
        held += len(piece)
        if held >= BLOCK:
            yield pieces
            pieces, held = [], 0
    yield pieces
