"""Checks the content of files in child processes, so that no content can slow down or stop a worker.

A check that takes too long is killed, as is one whose client left. One whose process was killed by others is repeated
once. Verdicts are kept: no content is checked twice.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import anyio
from anyio import BrokenWorkerProcess, CapacityLimiter, to_process, to_thread
from anyio.lowlevel import RunVar

from kcard.hub.checks.verdicts import Candidate, Verdict, judge
from kcard.hub.refusals import Invalid
from kcard.hub.repositories.verdicts import Verdicts

__all__ = ["check"]

PROCESSES = 2  # of each worker; an account uses one at a time
SECONDS = 30.0  # for any file
BYTES_PER_SECOND = 20 << 20  # for large ones
MEMORY = 4 << 30  # bytes of a child's address space
NICENESS = 10
BATCH_FILES, BATCH_BYTES = 500, 4 << 20
_limiter: RunVar[CapacityLimiter] = RunVar("kcard.checks")


async def check(verdicts: Verdicts, files: Sequence[tuple[str, Candidate]]) -> None:
    """Raise Invalid, Dangerous or TooLarge for a file, with its path, that is not allowed."""
    if not files:
        return
    known = await to_thread.run_sync(verdicts.find, [_key(candidate) for _, candidate in files])
    new: dict[tuple[str, str], tuple[str, Candidate]] = {}
    for path, candidate in files:
        if _key(candidate) not in known:
            new.setdefault(_key(candidate), (path, candidate))
    for path, candidate in files:
        if verdict := known.get(_key(candidate)):
            verdict.enforce(path)
    for batch in _batches([*new.values()]):
        found = await _judged(batch)
        fresh = {_key(candidate): verdict for (_, candidate), verdict in zip(batch, found, strict=True)}
        await to_thread.run_sync(verdicts.keep, fresh)
        for path, candidate in batch:
            fresh[_key(candidate)].enforce(path)


def _key(candidate: Candidate) -> tuple[str, str]:
    return candidate.sha256, candidate.form


def _batches(files: Sequence[tuple[str, Candidate]]) -> Iterator[Sequence[tuple[str, Candidate]]]:
    """The files, in batches of a few or of one large one."""
    batch: list[tuple[str, Candidate]] = []
    size = 0
    for file in files:
        size += file[1].size
        if batch and (size > BATCH_BYTES or len(batch) == BATCH_FILES):
            yield batch
            batch, size = [], file[1].size
        batch.append(file)
    if batch:
        yield batch


async def _judged(batch: Sequence[tuple[str, Candidate]]) -> list[Verdict]:
    candidates = [candidate for _, candidate in batch]
    seconds = SECONDS + sum(candidate.size for candidate in candidates) / BYTES_PER_SECOND
    what = batch[0][0] if len(batch) == 1 else f"{batch[0][0]} and {len(batch) - 1} other files"
    async with _limit():
        try:
            work = partial(_judge_alone, candidates, seconds)
            with suppress(BrokenWorkerProcess):  # killed, perhaps for memory that others took
                return await _in_process(work, seconds)
            return await _in_process(work, seconds)
        except TimeoutError:
            raise Invalid(f"checking {what} took more than {seconds:.0f} s: split the file") from None
        except (BrokenWorkerProcess, MemoryError):
            raise Invalid(f"checking {what} failed: it takes too much memory; split the file") from None


async def _in_process(work: Callable[[], list[Verdict]], seconds: float) -> list[Verdict]:
    with anyio.fail_after(seconds):  # without the wait for a process
        return await to_process.run_sync(work, cancellable=True, limiter=CapacityLimiter(1))


def _judge_alone(candidates: Sequence[Candidate], seconds: float) -> list[Verdict]:
    """In a child process: `judge`, with little priority and memory. The alarm ends it if its parent died."""
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.alarm(int(seconds) + 2)
    try:
        return judge(candidates)
    finally:
        signal.alarm(0)


def _limit() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        _limiter.set(limiter := CapacityLimiter(PROCESSES))
        return limiter
