"""A worker process of the server."""

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

__all__ = ["Location", "follow_parent", "open_hub", "worker"]

RETRY_SECONDS = 1.0

logger = logging.getLogger("kcard.hub.server")


@dataclass(frozen=True)
class Location:
    """Where the hub is stored; None: as configured."""

    home: Path | None = None
    database_url: str | None = field(default=None, repr=False)
    blobs_url: str | None = field(default=None, repr=False)


def worker(location: Location, options: ServerOptions) -> "ASGIApp":
    """The application in its own process, which ends when its parent does."""
    from kcard.hub.server.app import create_app

    follow_parent()
    app = create_app(_open_or_wait(location, options), options)
    # These objects stay: collecting garbage among them would block every request for 90 ms.
    gc.collect()
    gc.freeze()
    return app


def _open_or_wait(location: Location, options: ServerOptions) -> "SharedHub":
    """Open the hub, waiting while the database is unavailable; the parent has opened it before."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # no request is running yet
    try:
        while True:
            try:
                return open_hub(location, options)
            except Unavailable as error:
                logger.error("can't open the hub, trying again: %s", error)
                time.sleep(RETRY_SECONDS)
    finally:
        signal.signal(signal.SIGTERM, before)


def follow_parent() -> None:
    """End this process when its parent ends, however that ends."""
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: Any) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def open_hub(location: Location, options: ServerOptions) -> "SharedHub":
    """Open the hub with these options."""
    from kcard.hub.shared import SharedHub

    return SharedHub.open(
        location.home,
        database_url=location.database_url,
        blobs_url=location.blobs_url,
        quota=options.quota,
        exam_required=options.exam == "required",
    )
