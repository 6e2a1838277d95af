"""One of the processes that answer: what it opens, and what it waits for."""

import gc
import logging
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import Unavailable
from kcard.hub.server.options import ServerOptions

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from kcard.hub.shared import SharedHub

__all__ = ["Places", "opened", "worker"]

RETRY_SECONDS = 1.0

logger = logging.getLogger("kcard.hub.server")


@dataclass(frozen=True)
class Places:
    """Where the hub keeps what it holds; None: as configured."""

    home: Path | None = None
    database_url: str | None = field(default=None, repr=False)
    blobs_url: str | None = field(default=None, repr=False)


def worker(places: Places, options: ServerOptions) -> "ASGIApp":
    """The application, in a process of its own; it ends with its supervisor, however that ended."""
    from kcard.hub.server.app import create_app

    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    app = create_app(_opened_at_last(places, options), options)
    # What is there now stays for good: looking through it for garbage stops every request for 90 ms, again and again.
    gc.collect()
    gc.freeze()
    return app


def _opened_at_last(places: Places, options: ServerOptions) -> "SharedHub":
    """The hub. It could be opened before any worker started: where it can't, the database is away for a while."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is being answered yet
    try:
        while True:
            try:
                return opened(places, options)
            except Unavailable as error:
                logger.error("a worker waits until the hub can be opened: %s", error)
                time.sleep(RETRY_SECONDS)
    finally:
        signal.signal(signal.SIGTERM, before)


def _follow(parent: Any) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def opened(places: Places, options: ServerOptions) -> "SharedHub":
    """The hub in its places, by the options that it goes by itself."""
    from kcard.hub.shared import SharedHub

    return SharedHub.open(
        places.home,
        database_url=places.database_url,
        blobs_url=places.blobs_url,
        quota=options.quota,
        exam_required=options.exam == "required",
    )
