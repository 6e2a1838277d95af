"""Serves a shared hub: worker processes behind one address, and a supervisor that restarts dead ones.

The database is migrated once, before any worker starts. Workers get all options at their start and read no settings.
"""

import functools
import http.client
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError, MissingExtra, UsageError
from kcard.hub.server.asking.child import Program
from kcard.hub.server.asking.processes import ask_workers
from kcard.hub.server.job_workers import Work, job_workers
from kcard.hub.server.middleware import shared_buckets
from kcard.hub.server.middleware.logs import LogFormat, configuration
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.worker import Location, open_hub, worker

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["Serving", "serve"]

# Checked at the start, so that no upload fails halfway.
MODULES = [
    "blake3",
    "fastapi",
    "httptools",
    "lz4",
    "markdown_it",
    "nh3",
    "prometheus_client",
    "python_multipart",
    "uvicorn",
]
BACKLOG = 2048
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # where prometheus_client writes its files
COUNTS = "requests"
HANG_SECONDS = 10  # a worker that does not answer its supervisor is replaced
START_SECONDS = 120
FIRST_TOKEN = "first"


@dataclass(frozen=True)
class Serving:
    """Options of the server process.

    port         0: any free port
    job_workers  processes that measure published versions
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
    job_workers: int = 1
    ask_workers: int = 0


def serve(
    serving: Serving,
    location: Location,
    options: ServerOptions,
    *,
    first: Callable[[str], None],
    ready: Callable[[str], None],
    work: Work | None = None,
    answering: Program | None = None,
) -> None:
    """Serve until SIGTERM, or until Ctrl-C raises KeyboardInterrupt. A second signal aborts running requests.

    first      is called with an administrator's token if the hub has no account yet
    ready      is called with the URL once it answers
    work       what the job workers do; None: there are none
    answering  what the ask workers run; None: there are none
    Raises MissingExtra without the extra `server`, HubError if the address is in use or the hub can't be opened.
    """
    _require_server()
    with _listening(serving) as listener, _counting() as folder:
        token = _prepare(location, options, serving.namespace)
        if token is not None:
            first(token)
        counts = Path(folder) / COUNTS
        shared_buckets.create(counts)
        with (
            job_workers(serving.job_workers, work, location, serving.log_format),
            ask_workers(serving.ask_workers, answering) as asking,
        ):
            options = replace(options, metrics=folder, counts=str(counts), asking=asking)
            app = functools.partial(worker, location, options)
            received = _supervised(serving, app, listener, ready)
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


def _supervised(
    serving: Serving, app: Callable[[], "ASGIApp"], listener: socket.socket, ready: Callable[[str], None]
) -> list[int]:
    """Run the workers until a signal arrives or one fails to start; returns the signals."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from kcard.hub.server.header_timeout import HeaderTimeout

    config = uvicorn.Config(
        app,
        factory=True,
        http=HeaderTimeout,
        workers=serving.workers,
        log_config=configuration(serving.log_format),
        access_log=False,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=serving.proxies,
        timeout_graceful_shutdown=serving.grace,
        timeout_worker_healthcheck=HANG_SECONDS,
        lifespan="on",
        ws="none",
    )
    ended, received = threading.Event(), list[int]()
    with _signals():
        supervisor = Multiprocess(config, [listener])

        def stop(number: int, _frame: object) -> None:
            received.append(number)
            supervisor.signal_queue.append(number)
            if len(received) > 1:  # don't wait for running requests
                for child in supervisor.processes:
                    child.process.kill()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        address = listener.getsockname()
        threading.Thread(target=_announce, args=(address, ended, ready), daemon=True).start()
        with _block_interrupts(ended):
            supervisor.run()
        ended.set()
    return received


@contextmanager
def _listening(serving: Serving) -> Iterator[socket.socket]:
    """A listening socket: no second server can take the address."""
    family = socket.AF_INET6 if ":" in serving.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((serving.host, serving.port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        where = f"{serving.host}:{serving.port}"
        raise HubError(f"can't listen on {where}: {reason}; choose another --host or --port") from None
    listener.set_inheritable(True)
    with listener:
        yield listener


@contextmanager
def _counting() -> Iterator[str]:
    """A folder for what all workers count: metrics, which prometheus_client finds in the environment, and requests."""
    with tempfile.TemporaryDirectory(prefix="kcard-counts-", ignore_cleanup_errors=True) as folder:
        os.putenv(METRICS_VARIABLE, folder)
        try:
            yield folder
        finally:
            os.unsetenv(METRICS_VARIABLE)


@contextmanager
def _signals() -> Iterator[None]:
    """Restore the signal handlers that the supervisor replaces."""
    from uvicorn.supervisors.multiprocess import SIGNALS

    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _block_interrupts(ended: threading.Event) -> Iterator[None]:
    """Deliver Ctrl-C to the supervisor only, which stops the workers in order.

    A terminal signals all processes. Workers inherit this thread's blocked signal; another thread here receives it.
    """
    threading.Thread(target=ended.wait, daemon=True).start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _announce(address: Any, ended: threading.Event, ready: Callable[[str], None]) -> None:
    """Call `ready` as soon as a worker answers."""
    host, port = address[:2]
    anywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    deadline = time.monotonic() + START_SECONDS
    while not ended.is_set() and time.monotonic() < deadline:
        connection = http.client.HTTPConnection(anywhere.get(host, host), port, timeout=START_SECONDS)
        try:
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
                return
        except (OSError, http.client.HTTPException):
            ended.wait(0.1)
        finally:
            connection.close()


def _require_server() -> None:
    missing = [name for name in MODULES if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"serving a hub needs {', '.join(missing)}: pip install 'kcard[server]'")
    if os.name != "posix":
        raise UsageError("unsupported platform: serving a hub needs POSIX signals, as on Linux and macOS")
