"""Uploads before they are stored: request bodies on disk, and checks in child processes.

A check is killed if it takes too long or its client disconnects. It is repeated once if its process was killed from
outside. Verdicts are stored, so that no content is checked twice.
"""

import hashlib
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
from anyio import BrokenWorkerProcess, CapacityLimiter, to_process, to_thread
from starlette.requests import ClientDisconnect, Request

from kcard.hub.checks.content import ContentCandidate, ContentVerdict, judge
from kcard.hub.errors import Invalid, TooLarge
from kcard.hub.server.concurrency import limiter
from kcard.hub.server.limits import lift_body_limit
from kcard.hub.storage import explain_os_errors, partial_folder
from kcard.hub.uploads import Verdicts

BLOCK_BYTES = 1 << 20  # that are written at a time


@dataclass(frozen=True)
class StoredBody:
    """What a client sent, as a file, deleted at the end of the block that stores it unless it was moved."""

    path: Path
    sha256: str
    size: int


@asynccontextmanager
async def store_body(request: Request, partial: Path, limit: int) -> AsyncIterator[StoredBody]:
    """Write the body of a request to disk, in a folder of its own under `partial`, until the block ends.

    Raises TooLarge as soon as the body has, or declares, more than `limit` bytes.
    """
    lift_body_limit(request)
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"request body too large: {declared} bytes, the limit is {limit}")
    digest, size = hashlib.sha256(), 0
    with explain_os_errors("can't store the upload"), partial_folder(partial) as folder:
        with (folder / "body").open("xb") as file:

            def write(block: bytearray) -> None:
                digest.update(block)
                file.write(block)

            def flush() -> None:
                file.flush()
                os.fsync(file.fileno())

            block = bytearray()
            try:
                async for piece in request.stream():
                    size += len(piece)
                    if size > limit:
                        raise TooLarge(f"request body too large: the limit is {limit} bytes")
                    block += piece
                    if len(block) >= BLOCK_BYTES:
                        await to_thread.run_sync(write, block)
                        block = bytearray()
            except ClientDisconnect:
                raise Invalid("the client disconnected before the end of the request") from None
            await to_thread.run_sync(write, block)
            await to_thread.run_sync(flush)
        yield StoredBody(folder / "body", digest.hexdigest(), size)


MAX_PROCESSES = 2  # of each worker; an account uses one at a time
BASE_SECONDS = 30.0  # for any file
BYTES_PER_SECOND = 20 << 20  # for large ones
MAX_MEMORY_BYTES = 4 << 30  # a child's address space
NICENESS = 10
MAX_BATCH_FILES, MAX_BATCH_BYTES = 500, 4 << 20


async def check_files(verdicts: Verdicts, files: Sequence[tuple[str, ContentCandidate]]) -> None:
    """Raise Invalid, Dangerous or TooLarge, with the path, for the first file that is not allowed."""
    if not files:
        return
    stored = await to_thread.run_sync(verdicts.find, [_key(candidate) for _, candidate in files])
    new: dict[tuple[str, str], tuple[str, ContentCandidate]] = {}
    for path, candidate in files:
        if _key(candidate) not in stored:
            new.setdefault(_key(candidate), (path, candidate))
        else:
            stored[_key(candidate)].enforce(path)
    for batch in _make_batches([*new.values()]):
        results = await judge_batch(batch)
        fresh = {_key(candidate): verdict for (_, candidate), verdict in zip(batch, results, strict=True)}
        await to_thread.run_sync(verdicts.store, fresh)
        for path, candidate in batch:
            fresh[_key(candidate)].enforce(path)


def _key(candidate: ContentCandidate) -> tuple[str, str]:
    return candidate.sha256, candidate.form


def _make_batches(
    files: Sequence[tuple[str, ContentCandidate]],
) -> Iterator[Sequence[tuple[str, ContentCandidate]]]:
    """Group the files into batches of several small files or a single large one."""
    batch: list[tuple[str, ContentCandidate]] = []
    size = 0
    for file in files:
        size += file[1].size
        if batch and (size > MAX_BATCH_BYTES or len(batch) == MAX_BATCH_FILES):
            yield batch
            batch, size = [], file[1].size
        batch.append(file)
    if batch:
        yield batch


async def judge_batch(batch: Sequence[tuple[str, ContentCandidate]]) -> list[ContentVerdict]:
    candidates = [candidate for _, candidate in batch]
    seconds = BASE_SECONDS + sum(candidate.size for candidate in candidates) / BYTES_PER_SECOND
    what = batch[0][0] if len(batch) == 1 else f"{batch[0][0]} and {len(batch) - 1} other files"
    async with limiter("checks", MAX_PROCESSES):
        try:
            work = partial(_judge_in_child, candidates, seconds)
            with suppress(BrokenWorkerProcess):  # killed, perhaps because other processes used up the memory
                return await _in_process(work, seconds)
            return await _in_process(work, seconds)
        except TimeoutError:
            raise Invalid(f"checking {what} took more than {seconds:.0f} s: split the file") from None
        except (BrokenWorkerProcess, MemoryError):
            raise Invalid(f"checking {what} failed: it takes too much memory; split the file") from None


async def _in_process(work: Callable[[], list[ContentVerdict]], seconds: float) -> list[ContentVerdict]:
    with anyio.fail_after(seconds):  # without the wait for a process
        return await to_process.run_sync(work, cancellable=True, limiter=CapacityLimiter(1))


def _judge_in_child(candidates: Sequence[ContentCandidate], seconds: float) -> list[ContentVerdict]:
    """Run `judge` in a child process with low priority and limited memory. The alarm ends it if its parent died."""
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    signal.alarm(int(seconds) + 2)
    try:
        return judge(candidates)
    finally:
        signal.alarm(0)
