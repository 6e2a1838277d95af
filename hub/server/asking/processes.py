"""Runs the processes that answer questions beside a server, for all of its workers."""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kcard.errors import HubError
from kcard.hub.server.asking.child import LONGEST_LINE, Program
from kcard.hub.server.asking.relay import Relay

__all__ = ["ask_workers"]

START_SECONDS = 30
STOP_SECONDS = 10


@contextmanager
def ask_workers(count: int, program: Program | None) -> Iterator[str | None]:
    """Run `count` processes until the block ends; the path of the socket at which they are asked, None without any.

    Only this user may connect.
    """
    if not count or program is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="kcard-asking-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "socket"
        ready: Future[Callable[[], object]] = Future()
        relay = Relay(program, count, Path(folder))
        thread = threading.Thread(target=asyncio.run, args=(_serve(relay, path, ready),), daemon=True)
        thread.start()
        stop = ready.result(START_SECONDS)
        try:
            yield str(path)
        finally:
            stop()
            thread.join(STOP_SECONDS)


async def _serve(relay: Relay, path: Path, ready: "Future[Callable[[], object]]") -> None:
    """Serve until the function that `ready` gets is called, in any thread."""
    ended = asyncio.Event()
    try:
        await relay.start()
        server = await asyncio.start_unix_server(relay.serve, path, limit=LONGEST_LINE)
    except OSError as error:
        await relay.stop()
        ready.set_exception(HubError(f"can't start the processes that answer questions: {error}"))
        return
    ready.set_result(partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set))
    await ended.wait()
    server.close()
    await relay.stop()
