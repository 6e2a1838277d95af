"""Serves a shared hub.

The database is migrated once, before any worker starts. Workers get all options at their start and read no settings.
"""

import functools
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from kcard.errors import HubError, MissingExtra, UsageError
from kcard.hub.server.asking.child import Program
from kcard.hub.server.asking.processes import ask_workers
from kcard.hub.server.middleware.logs import LogFormat
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.processes import listening, run_workers
from kcard.hub.server.worker import Location, open_hub, worker

__all__ = ["Serving", "serve"]

# Checked at the start, so that no upload fails halfway.
MODULES = [
    "fastapi",
    "httptools",
    "markdown_it",
    "nh3",
    "prometheus_client",
    "python_multipart",
    "uvicorn",
]
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # where prometheus_client writes its files
COUNTS = "requests"
FIRST_TOKEN = "first"


@dataclass(frozen=True)
class Serving:
    """Options of the server process.

    port         0: any free port
    ask_workers  processes that answer questions on the pages
    proxies      comma-separated addresses of proxies whose X-Forwarded-For is trusted
    grace        seconds that running requests get to finish when the server is stopped
    namespace    the organisation for the hub's own cards; None: unchanged
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 2
    log_format: LogFormat = "text"
    proxies: str = "127.0.0.1,::1"
    grace: int = 30
    namespace: str | None = None
    ask_workers: int = 0


def serve(
    serving: Serving,
    location: Location,
    options: ServerOptions,
    *,
    first: Callable[[str], None],
    ready: Callable[[str], None],
    answering: Program | None = None,
) -> None:
    """Serve until SIGTERM, or until Ctrl-C raises KeyboardInterrupt. A second signal aborts running requests.

    first      is called with an administrator's token if the hub has no account yet
    ready      is called with the URL once it answers
    answering  what the ask workers run; None: there are none
    Raises MissingExtra without the extra `server`, HubError if the address is in use or the hub can't be opened.
    """
    _require_server()
    from kcard.hub.server.limits import create_counts

    with listening(serving.host, serving.port) as listener, _counting() as folder:
        token = _prepare(location, options, serving.namespace)
        if token is not None:
            first(token)
        counts = Path(folder) / COUNTS
        create_counts(counts)
        with ask_workers(serving.ask_workers, answering) as asking:
            options = replace(options, metrics=folder, counts=str(counts), asking=asking)
            app = functools.partial(worker, location, options)
            received = run_workers(
                app,
                listener,
                ready,
                workers=serving.workers,
                log_format=serving.log_format,
                proxies=serving.proxies,
                grace=serving.grace,
            )
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    if not received:
        raise HubError("the server stopped because a worker failed to start: see the log above")


def _prepare(location: Location, options: ServerOptions, namespace: str | None) -> str | None:
    """Migrate the hub; returns the first administrator's token if there was no account."""
    from kcard.hub.repositories.own_cards import OwnCards

    hub = open_hub(location, options)
    try:
        if namespace is not None:
            OwnCards(hub.database, hub.blobs).rename(namespace)
        account = hub.accounts.first()
        if account is None:
            return None
        return hub.tokens.create(account.name, name=FIRST_TOKEN, scope="admin")
    finally:
        hub.database.close()


@contextmanager
def _counting() -> Iterator[str]:
    """A folder for what all workers count: metrics, which prometheus_client finds in the environment, and requests."""
    with tempfile.TemporaryDirectory(prefix="kcard-counts-", ignore_cleanup_errors=True) as folder:
        os.putenv(METRICS_VARIABLE, folder)
        try:
            yield folder
        finally:
            os.unsetenv(METRICS_VARIABLE)


def _require_server() -> None:
    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"serving a hub needs {', '.join(missing)}: pip install 'kcard[server]'")
    if os.name != "posix":
        raise UsageError("unsupported platform: serving a hub needs POSIX signals, as on Linux and macOS")
