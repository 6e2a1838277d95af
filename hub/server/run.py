"""Run a hub's server in one process or several.

The database is migrated once, before any worker starts. Workers receive all options when they start, and read no
settings.
"""

import errno
import functools
import gc
import http.client
import logging
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError, Unavailable, UsageError
from kcard.hub.server.dependencies import ServerOptions
from kcard.hub.server.logs import LogFormat, log_configuration

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from kcard.hub.services import HubServices


RETRY_SECONDS = 1.0  # while the database is unavailable

logger = logging.getLogger("kcard.hub.server")


@dataclass(frozen=True)
class Location:
    """Where the hub is stored; None: as configured."""

    home: Path | None = None
    database_url: str | None = field(default=None, repr=False)
    blobs_url: str | None = field(default=None, repr=False)


def worker(location: Location, options: ServerOptions) -> "ASGIApp":
    """Return the application of a worker process, which ends when its parent does."""
    from kcard.hub.server.app import create_app

    follow_parent()
    app = create_app(_open_or_wait(location, options), options)
    # These objects live as long as the worker: collecting garbage among them would block all requests for 90 ms.
    gc.collect()
    gc.freeze()
    return app


def _open_or_wait(location: Location, options: ServerOptions) -> "HubServices":
    """Open the hub, which the parent has opened before, waiting while the database is unavailable."""
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

        def follow() -> None:
            parent.join()
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=follow, daemon=True).start()


def open_hub(location: Location, options: ServerOptions) -> "HubServices":
    """Open the hub with these options."""
    from kcard.hub.services import HubServices

    return HubServices(
        location.home,
        database_url=location.database_url,
        blobs_url=location.blobs_url,
        quota=options.quota,
        exam_required=options.exam == "required",
    )


BACKLOG = 2048
BIND_SECONDS = 5.0
HANG_SECONDS = 30  # a worker that does not start, or answer its parent, in this time is replaced
START_SECONDS = 120


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a listening socket: no second server can take the address. Raises HubError if another has it.

    The workers of a killed server hold its address for a moment, so binding is tried again for BIND_SECONDS.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches off Nagle's algorithm, which delays answers by 40 ms, only for sockets that say they are TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    deadline = time.monotonic() + BIND_SECONDS
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        while True:
            try:
                listener.bind((host, port))
                listener.listen(BACKLOG)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        where = f"{host}:{port}"
        raise HubError(f"can't listen on {where}: {reason}; choose another --host or --port") from None
    listener.set_inheritable(True)
    with listener:
        yield listener


MAX_OPEN_FILES = 1 << 16  # of a process; each connection is one


def raise_file_limit() -> None:
    """Let this process and its workers open up to MAX_OPEN_FILES, if the system allows that: the usual 1,024 are soon
    taken by slow clients."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(ValueError, OSError):  # a system with a lower limit of its own
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def run_workers(
    app: Callable[[], "ASGIApp"],
    listener: socket.socket,
    ready: Callable[[str], None],
    *,
    workers: int,
    log_format: LogFormat,
    proxies: str,
    shutdown_timeout: int,
) -> list[int]:
    """Run the workers until a signal arrives or one fails to start; return the signals.

    ready    is called with the URL once a worker answers GET /healthz
    proxies  comma-separated addresses of proxies whose X-Forwarded-For is trusted
    shutdown_timeout  seconds that running requests get to finish
    """
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from kcard.hub.server.limits import Connection

    raise_file_limit()
    config = uvicorn.Config(
        app,
        factory=True,
        http=Connection,
        workers=workers,
        log_config=log_configuration(log_format),
        access_log=False,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=shutdown_timeout,
        timeout_worker_healthcheck=HANG_SECONDS,
        lifespan="on",
        ws="none",
    )
    ended, received = threading.Event(), list[int]()
    processes = Multiprocess(config, [listener])

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        processes.signal_queue.append(number)
        if len(received) > 1:  # don't wait for running requests
            for child in processes.processes:
                child.process.kill()

    # The first signal stops the workers, the second one kills them.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    threading.Thread(
        target=_announce_when_ready, args=(listener.getsockname(), ended, ready), daemon=True
    ).start()
    processes.run()
    ended.set()
    return received


def _announce_when_ready(address: Any, ended: threading.Event, ready: Callable[[str], None]) -> None:
    """Call `ready` with the URL as soon as a worker answers."""
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


FIRST_TOKEN = "first"


@dataclass(frozen=True)
class Serving:
    """Options of the server process.

    port         0: any free port
    proxies      comma-separated addresses of proxies whose X-Forwarded-For is trusted
    shutdown_timeout  seconds that running requests get to finish when the server is stopped
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 2
    log_format: LogFormat = "text"
    proxies: str = "127.0.0.1,::1"
    shutdown_timeout: int = 30


def serve(
    serving: Serving,
    location: Location,
    options: ServerOptions,
    *,
    first: Callable[[str], None],
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGTERM, or until Ctrl-C raises KeyboardInterrupt. A second signal aborts running requests.

    first      is called with an administrator's token if the hub has no account yet
    ready      is called with the URL once it answers
    Raises HubError if the address is in use or the hub can't be opened.
    """
    if os.name != "posix":
        raise UsageError("unsupported platform: serving a hub needs POSIX signals, as on Linux and macOS")
    from kcard.hub.server.limits import create_counts

    with (
        listening(serving.host, serving.port) as listener,
        tempfile.TemporaryDirectory(prefix="kcard-counts-", ignore_cleanup_errors=True) as folder,
    ):
        token = _prepare_hub(location, options)
        if token is not None:
            first(token)
        counts = Path(folder) / "requests"
        create_counts(counts)
        options = replace(options, counts=str(counts))
        app = functools.partial(worker, location, options)
        received = run_workers(
            app,
            listener,
            ready,
            workers=serving.workers,
            log_format=serving.log_format,
            proxies=serving.proxies,
            shutdown_timeout=serving.shutdown_timeout,
        )
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    if not received:
        raise HubError("the server stopped because a worker failed to start: see the log above")


def _prepare_hub(location: Location, options: ServerOptions) -> str | None:
    """Migrate the hub; return the first administrator's token if there was no account."""
    from kcard.hub.storage import sweep

    hub = open_hub(location, options)
    try:
        sweep(hub.blobs.partial)  # uploads to a server that was killed
        account = hub.accounts.create_first()
        if account is None:
            return None
        return hub.tokens.create(account.name, name=FIRST_TOKEN, scope="admin")
    finally:
        hub.database.close()
