"""Fetches files of mirrors: each once, however many clients of however many workers wait for it.

A file is written to a folder of its own, which its fetcher locks. Readers follow the file while it grows, but get the
last bytes that they want only when it was verified against the hash that upstream named, and its content checked as
that of a commit. From then on it is read-only, and soon in the store.
"""

import asyncio
import hashlib
import logging
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

from anyio import CapacityLimiter, to_thread

from kcard.errors import DiskFull, KcardError
from kcard.hub.checks.content import check_name
from kcard.hub.checks.verdicts import Candidate, opened
from kcard.hub.client.upstream import Upstream
from kcard.hub.records.utc import now
from kcard.hub.refusals import Forbidden, Invalid, Refused, TooLarge, UpstreamFailed
from kcard.hub.repositories.mirrors import Mirror, Mirrors
from kcard.hub.repositories.values import Entry
from kcard.hub.server.errors import status_of
from kcard.hub.server.mirror.options import FULL
from kcard.hub.server.writing.checking import check
from kcard.hub.shared import SharedHub
from kcard.hub.store.disk import discard, explained, sole_use

__all__ = ["Fetches", "Wanted"]

AT_ONCE = 8  # fetches of a worker
HELD = 1 << 16  # bytes that a reader gets only of a verified file
BLOCK = 1 << 18  # bytes read at a time
POLL_SECONDS, WAIT_SECONDS, STALL_SECONDS = 0.05, 8.0, 90.0
# How long a failure holds: of upstream or the disk, or because of the file's content.
BRIEF, LONG = timedelta(seconds=30), timedelta(days=1)
READ_ONLY, WRITABLE = 0o444, 0o200
STATUS = {403: Forbidden, 502: UpstreamFailed}

logger = logging.getLogger("kcard.hub.server")


@dataclass(frozen=True)
class Wanted:
    """A file of a commit of a mirror, and the token with which to fetch it."""

    mirror: Mirror
    commit: str
    entry: Entry
    token: str | None = field(default=None, repr=False)

    @property
    def oid(self) -> str:
        """What upstream names the content by: its sha256, or the sha1 of git's blob."""
        return self.entry.sha256 if self.entry.lfs else self.entry.oid


class Fetches:
    """The fetches of a worker. `limit`: most bytes of all mirrors."""

    def __init__(self, hub: SharedHub, mirrors: Mirrors, upstream: Upstream, limit: int) -> None:
        self._hub, self._mirrors, self._upstream, self._limit = hub, mirrors, upstream, limit
        self._folder = hub.blobs.partial.parent / "mirror"
        self._running: dict[Path, asyncio.Task[None]] = {}
        self._turns, self._threads = asyncio.Semaphore(AT_ONCE), CapacityLimiter(AT_ONCE)
        self._stopping = threading.Event()

    async def stop(self) -> None:
        """End all fetches; what they have fetched is deleted."""
        self._stopping.set()
        tasks = [*self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def get(self, wanted: Wanted) -> str | int:
        """The sha256 of the stored file, or a handle of the file that is being fetched, for `follow`.

        Raises Forbidden for content that this hub refuses, UpstreamFailed.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            found = await to_thread.run_sync(self._look, wanted)
            if isinstance(found, str):
                return found
            self._start(wanted)
            if found is not None and (_ready(found, wanted.entry.size) or time.monotonic() > deadline):
                return found
            if found is not None:
                os.close(found)
            if time.monotonic() > deadline:
                raise UpstreamFailed(
                    f"{wanted.entry.path} is still waiting for {self._upstream.url}: try again"
                )
            await asyncio.sleep(POLL_SECONDS)

    async def follow(self, handle: int, start: int, stop: int) -> AsyncIterator[bytes]:
        """The bytes of a file that is being fetched, from `start` up to `stop`.

        The last of them come when it was verified. Raises UpstreamFailed if it was not.
        """
        position, progress = start, (time.monotonic(), 0)
        while position < stop:
            state = os.fstat(handle)
            verified = not state.st_mode & WRITABLE
            ready = stop if verified else min(state.st_size, stop - HELD)
            if position < ready:
                block = await to_thread.run_sync(os.pread, handle, min(BLOCK, ready - position), position)
                if block:
                    position += len(block)
                    yield block
                    continue
            if state.st_size != progress[1]:
                progress = (time.monotonic(), state.st_size)
            if state.st_nlink == 0 or time.monotonic() - progress[0] > STALL_SECONDS:
                raise UpstreamFailed("the file could not be fetched: try again")
            await asyncio.sleep(POLL_SECONDS)

    def _look(self, wanted: Wanted) -> str | int | None:
        """The stored file, or the one that is being fetched. Raises why it could not be."""
        found = self._mirrors.file(wanted.mirror, wanted.oid)
        if found is not None and found.error is not None:
            raise STATUS.get(found.status or 502, UpstreamFailed)(found.error)
        if found is not None and found.sha256 is not None:
            return found.sha256
        with suppress(FileNotFoundError):
            return os.open(self._path(wanted) / "content", os.O_RDONLY)
        return None

    def _path(self, wanted: Wanted) -> Path:
        return self._folder / f"{wanted.mirror.id}-{wanted.oid}"

    def _start(self, wanted: Wanted) -> None:
        """Fetch the file, unless this worker does so already."""
        path = self._path(wanted)
        if path not in self._running and not self._stopping.is_set():
            self._running[path] = task = asyncio.create_task(self._fetch(wanted, path))
            task.add_done_callback(lambda _: self._running.pop(path, None))

    async def _fetch(self, wanted: Wanted, path: Path) -> None:
        async with self._turns:
            path.mkdir(parents=True, exist_ok=True)
            with sole_use(path) as mine:
                if not mine or not path.exists():  # another worker fetches it, or just did
                    return
                try:
                    await self._fetched(wanted, path / "content")
                except KcardError as error:
                    _empty(path / "content")  # first: the disk may be full
                    await to_thread.run_sync(self._failed, wanted, error)
                except Exception:
                    logger.exception("fetching %s of %s failed", wanted.entry.path, wanted.mirror.name)
                finally:
                    discard(path)

    async def _fetched(self, wanted: Wanted, path: Path) -> None:
        mirror, entry = wanted.mirror, wanted.entry
        if await to_thread.run_sync(
            self._mirrors.file, mirror, wanted.oid
        ):  # another worker just did, or failed
            return
        path.unlink(missing_ok=True)  # the remains of a killed fetcher
        if not await to_thread.run_sync(self._mirrors.reserve, mirror, wanted.oid, entry.size, self._limit):
            raise UpstreamFailed(FULL.format(limit=self._limit))
        fetch = partial(self._download, wanted, path)
        sha256 = await to_thread.run_sync(fetch, limiter=self._threads, abandon_on_cancel=True)
        candidate = Candidate(sha256, entry.size, check_name(entry.path, entry.size), partial(opened, path))
        await check(self._hub.verdicts, [(entry.path, candidate)])
        await to_thread.run_sync(self._place, wanted, path, sha256)

    def _download(self, wanted: Wanted, path: Path) -> str:
        """Write the file and verify it; returns its sha256."""
        mirror, entry, url = wanted.mirror, wanted.entry, self._upstream.url
        sha256, size = hashlib.sha256(), 0
        sha1 = hashlib.sha1(b"blob %d\0" % entry.size, usedforsecurity=False)
        with explained(f"can't store {entry.path} of {mirror.name}"), path.open("xb", buffering=0) as stream:
            source = self._upstream.blocks(
                mirror.type, mirror.name, wanted.commit, entry.path, entry.size, wanted.token
            )
            for block in source:
                if self._stopping.is_set():
                    raise UpstreamFailed("this hub is stopping: try again")
                size += len(block)
                sha256.update(block)
                sha1.update(block)
                stream.write(block)
            os.fsync(stream.fileno())
        if size != entry.size or wanted.oid != (sha256 if entry.lfs else sha1).hexdigest():
            raise UpstreamFailed(
                f"{url} sent other bytes for {entry.path} of {mirror.name} than it listed: refused"
            )
        return sha256.hexdigest()

    def _place(self, wanted: Wanted, path: Path, sha256: str) -> None:
        path.chmod(READ_ONLY)  # tells readers, of all workers, that it is verified
        self._mirrors.stored(wanted.mirror, wanted.oid, sha256)
        self._hub.blobs.place(path, sha256, wanted.entry.size)

    def _failed(self, wanted: Wanted, error: KcardError) -> None:
        """Remember why the file could not be fetched."""
        refused = isinstance(error, (Invalid, TooLarge))
        status = 403 if refused else 502
        message = (
            str(error) if isinstance(error, Refused) else "this hub could not store the file: see its log"
        )
        if isinstance(error, DiskFull):
            message = "the hub's disk is full: tell its administrator"
        if not refused:
            logger.error("%s of %s (%d): %s", wanted.entry.path, wanted.mirror.name, status_of(error), error)
        until = now() + (LONG if refused else BRIEF)
        with suppress(KcardError):  # the disk or the database may be why
            self._mirrors.failed(wanted.mirror, wanted.oid, status, message, until)


def _ready(handle: int, size: int) -> bool:
    """Whether the first bytes of a file can be sent."""
    state = os.fstat(handle)
    return (state.st_size > HELD and size > HELD) or not state.st_mode & WRITABLE


def _empty(path: Path) -> None:
    """Delete a file, and free its bytes at once although readers have it open."""
    with suppress(FileNotFoundError):
        if path.stat().st_mode & WRITABLE:  # readers of a verified file may have the rest
            os.truncate(path, 0)
        path.unlink()
