"""Worker processes behind one address: uvicorn's, which restarts dead ones."""

import errno
import http.client
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kcard.errors import HubError
from kcard.hub.server.middleware.logs import LogFormat, configuration

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["listening", "run_workers"]

BACKLOG = 2048
BIND_SECONDS = 5.0
HANG_SECONDS = 10  # a worker that does not answer its parent is replaced
START_SECONDS = 120


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket: no second server can take the address. Raises HubError where another has it.

    The workers of a server that was killed hold its address for a moment: it is tried again for BIND_SECONDS.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
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


def run_workers(
    app: Callable[[], "ASGIApp"],
    listener: socket.socket,
    ready: Callable[[str], None],
    *,
    workers: int,
    log_format: LogFormat,
    proxies: str,
    grace: int,
) -> list[int]:
    """Run the workers until a signal arrives or one fails to start; returns the signals.

    ready    is called with the URL once a worker answers GET /healthz
    proxies  comma-separated addresses of proxies whose X-Forwarded-For is trusted
    grace    seconds that running requests get to finish
    """
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    from kcard.hub.server.limits import Connection

    config = uvicorn.Config(
        app,
        factory=True,
        http=Connection,
        workers=workers,
        log_config=configuration(log_format),
        access_log=False,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=grace,
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

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    threading.Thread(target=_announce, args=(listener.getsockname(), ended, ready), daemon=True).start()
    processes.run()
    ended.set()
    return received


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
