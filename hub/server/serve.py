"""Serves a shared hub: several worker processes behind one address, and a supervisor that starts dead ones again.

The database is brought up to date once, before any worker starts. What a worker needs to know travels to it with its
start; no worker reads settings of its own.
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
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError, MissingExtra, UsageError
from kcard.hub.server.middleware.logs import LogFormat, configuration
from kcard.hub.server.options import ServerOptions
from kcard.hub.server.worker import Places, opened, worker

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["Serving", "serve"]

# Looked for at the start, so that nothing turns out to be missing in the middle of an upload.
NEEDED = (
    "blake3",
    "fastapi",
    "lz4",
    "markdown_it",
    "nh3",
    "prometheus_client",
    "python_multipart",
    "uvicorn",
)
BACKLOG = 2048
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # how prometheus_client learns where to count
HANG_SECONDS = 10  # a worker that answers its supervisor no more for so long is replaced
START_SECONDS = 120
FIRST_TOKEN = "first"


@dataclass(frozen=True)
class Serving:
    """How the hub is served.

    port       0: any free one
    proxies    addresses of proxies whose word for the client's address and scheme is taken, with commas
    grace      seconds that requests in flight get to finish when the server is stopped
    namespace  the organisation in which the hub's own cards appear; None: where they are
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 2
    log_format: LogFormat = "text"
    proxies: str = "127.0.0.1,::1"
    grace: int = 30
    namespace: str | None = None


def serve(
    serving: Serving,
    places: Places,
    options: ServerOptions,
    *,
    first: Callable[[str], None],
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGTERM, or until Ctrl-C raises KeyboardInterrupt; a second of them ends requests in flight too.

    first  gets an administrator's token where the hub has no account yet: it is shown this once
    ready  gets the address once it answers
    Raises MissingExtra without the extra `server`, HubError where the address is taken or the hub can't be opened.
    """
    _require_server()
    with _listening(serving) as listener, _counting() as folder:
        token = _prepared(places, options, serving.namespace)
        if token is not None:
            first(token)
        app = functools.partial(worker, places, replace(options, metrics=folder))
        received = _supervised(serving, app, listener, ready)
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    if not received:
        raise HubError("the server has stopped, because a worker could not start: the lines above say why")


def _prepared(places: Places, options: ServerOptions, namespace: str | None) -> str | None:
    """Bring the hub up to date; the first administrator's token, where there was no account."""
    from kcard.hub.repositories.own_cards import OwnCards

    hub = opened(places, options)
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
    """Run the workers until a signal or a worker that can't start ends them; the signals that came."""
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    config = uvicorn.Config(
        app,
        factory=True,
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
            if len(received) > 1:  # whoever asks again won't wait for requests in flight
                for child in supervisor.processes:
                    child.process.kill()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, stop)
        address = listener.getsockname()
        threading.Thread(target=_announce, args=(address, ended, ready), daemon=True).start()
        with _interrupts_for_us_alone(ended):
            supervisor.run()
        ended.set()
    return received


@contextmanager
def _listening(serving: Serving) -> Iterator[socket.socket]:
    """A socket that already takes connections, so that no second server gets the address."""
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
        raise HubError(f"can't listen on {where}: {reason}; give another --host or --port") from None
    listener.set_inheritable(True)
    with listener:
        yield listener


@contextmanager
def _counting() -> Iterator[str]:
    """A folder in which the workers count together; prometheus_client wants to be told of it so."""
    with tempfile.TemporaryDirectory(prefix="kcard-metrics-", ignore_cleanup_errors=True) as folder:
        os.putenv(METRICS_VARIABLE, folder)
        try:
            yield folder
        finally:
            os.unsetenv(METRICS_VARIABLE)


@contextmanager
def _signals() -> Iterator[None]:
    """Give back the handlers of signals that the supervisor takes."""
    from uvicorn.supervisors.multiprocess import SIGNALS

    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _interrupts_for_us_alone(ended: threading.Event) -> Iterator[None]:
    """Ctrl-C reaches the supervisor and not the workers, which it stops itself, in order.

    A terminal sends it to all of them. Workers inherit that this thread does not take it; another one here does.
    """
    threading.Thread(target=ended.wait, daemon=True).start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _announce(address: Any, ended: threading.Event, ready: Callable[[str], None]) -> None:
    """Tell the address as soon as a worker answers there."""
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
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtra(f"serving a hub needs {', '.join(missing)}: pip install 'kcard[server]'")
    if os.name != "posix":
        raise UsageError("a hub is served on Linux or macOS: this system has no signals of their kind")
