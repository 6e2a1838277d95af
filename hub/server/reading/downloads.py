"""Download counts, collected in memory and written every few seconds and at shutdown.

A download is a GET, from the first byte, of the one small file that every use of a model reads first. Other files and
conditional requests do not count.
"""

import asyncio
import contextlib
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Mapping

from fastapi import FastAPI

__all__ = ["Downloads", "counted", "counting"]

EVERY_SECONDS = 5.0
# The first of these in a commit is the file whose GETs count.
COUNTED = ("config.json", "adapter_config.json", "kcard.json")

log = logging.getLogger("kcard.server")


def counted(tree: Container[str]) -> str | None:
    """The path whose GETs are the downloads of a commit with these paths; None: not counted."""
    return next((path for path in COUNTED if path in tree), None)


class Downloads:
    """Counts by repository id; `write` adds them to the database. Thread-safe."""

    def __init__(self, write: Callable[[Mapping[int, int]], object]) -> None:
        self._write = write
        self._counts: Counter[int] = Counter()
        self._lock = threading.Lock()

    def add(self, repository_id: int) -> None:
        """Count one."""
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
async def counting(app: FastAPI) -> AsyncIterator[None]:
    """Lifespan of the server's `app.state.downloads`."""
    downloads = Downloads(app.state.hub.repositories.count_download)
    app.state.downloads = downloads

    async def often() -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            await asyncio.to_thread(downloads.flush)

    task = asyncio.create_task(often())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.to_thread(downloads.flush)
