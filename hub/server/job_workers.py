"""The processes of a server that do the hub's jobs: started with it, restarted when they die, stopped with it.

What they do is the caller's: this package can't measure cards.
"""

import logging
import logging.config
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, Protocol

from kcard.errors import KcardError
from kcard.hub.server.middleware.logs import LogFormat, configuration
from kcard.hub.server.worker import Location

if TYPE_CHECKING:
    from kcard.hub.registry import Hub

__all__ = ["Work", "job_workers"]

RESTART_SECONDS = 5.0
STOP_SECONDS = 10.0  # to put jobs back

logger = logging.getLogger("kcard.hub.jobs")


class Work(Protocol):
    """What a job worker does. It must be a function of a module, since other processes call it."""

    def __call__(self, hub: "Hub", report: Callable[[str], None]) -> None:
        """Work on the jobs of a hub until SIGTERM, and report each in a sentence."""


@contextmanager
def job_workers(count: int, work: Work | None, location: Location, log_format: LogFormat) -> Iterator[None]:
    """Run `count` processes that work until the block ends."""
    if not count or work is None:
        yield
        return
    arguments = (work, location, log_format)
    processes = [_started(arguments) for _ in range(count)]
    ended = threading.Event()
    keeper = threading.Thread(target=_keep, args=(processes, arguments, ended), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(STOP_SECONDS)
            process.kill()
            process.join()


def _keep(
    processes: list[SpawnProcess], arguments: tuple[Work, Location, LogFormat], ended: threading.Event
) -> None:
    """Restart processes that die."""
    while not ended.wait(RESTART_SECONDS):
        for place, process in enumerate(processes):
            if not process.is_alive():
                logger.warning("job worker %s died with code %s", process.pid, process.exitcode)
                processes[place] = _started(arguments)


def _started(arguments: tuple[Work, Location, LogFormat]) -> SpawnProcess:
    """A new process. Ctrl-C, which a terminal sends to all processes, does not reach it: the server stops it."""
    process = multiprocessing.get_context("spawn").Process(target=_main, args=arguments, name="kcard-jobs")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _main(work: Work, location: Location, log_format: LogFormat) -> None:
    from kcard.hub.registry import Hub

    logging.config.dictConfig(configuration(log_format))
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_follow, args=(parent.join,), daemon=True).start()
    try:
        work(
            Hub(location.home, database_url=location.database_url, blobs_url=location.blobs_url), logger.info
        )
    except KcardError as error:  # the server starts another
        logger.error("can't work: %s", error)
        sys.exit(1)


def _follow(wait: Callable[[], None]) -> None:
    """Stop this process when the server does."""
    wait()
    os.kill(os.getpid(), signal.SIGTERM)
