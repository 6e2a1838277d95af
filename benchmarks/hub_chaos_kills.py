"""What benchmarks/hub_chaos.py kills at random: processes of a hub's server, and its database; and what is left."""

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.hub.postgres import Cluster

from benchmarks.serving import Server

__all__ = ["Chaos", "left"]

WORKER, CHECK = "worker", "content check"
JOB_WORKER, MEASUREMENT, BOTH = "job worker", "measurement", "job worker and its measurement"
WEIGHTS = {WORKER: 5, CHECK: 1, JOB_WORKER: 1, MEASUREMENT: 1, BOTH: 1}
DATABASE = "database"


@dataclass
class Chaos:
    """Kills at random for so many seconds, and no more: then clients that wait to try again must come through."""

    seconds: float
    server: Server
    cluster: Cluster | None
    chance: random.Random
    stopped: threading.Event = field(default_factory=threading.Event)
    killed: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        end = time.monotonic() + self.seconds
        while not self.stopped.wait(self.chance.uniform(1.5, 4)) and time.monotonic() < end:
            if self.cluster is not None and self.chance.random() < 0.2:
                self.cluster.stop("immediate")
                self.stopped.wait(self.chance.uniform(0.2, 2))
                self.cluster.start()
                self.killed[DATABASE] += 1
            else:
                self._kill()

    def _kill(self) -> None:
        """Kill processes of a kind that runs now."""
        there = {kind: groups for kind in WEIGHTS if (groups := self._processes(kind))}
        if not there:
            return
        kind = self.chance.choices([*there], [WEIGHTS[kind] for kind in there])[0]
        for process in self.chance.choice(there[kind]):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.killed[kind] += 1

    def _processes(self, kind: str) -> list[list[int]]:
        """What can be killed at once."""
        workers, jobs = self.server.workers(), self.server.job_workers()
        if kind == WORKER:
            return [[worker] for worker in workers]
        if kind == CHECK:
            return [[check] for check in self.server.children(workers, "anyio.to_process")]
        if kind == JOB_WORKER:
            return [[job] for job in jobs]
        found = {job: self.server.children([job], "kcard.api.measuring") for job in jobs}
        if kind == MEASUREMENT:
            return [[child] for children in found.values() for child in children]
        return [[job, *children] for job, children in found.items() if children]


def left(folder: Path, parent: int | None, seconds: float) -> list[str]:
    """Processes that work for a server in a folder but don't descend from `parent`, after so many seconds at most."""
    deadline = time.monotonic() + seconds
    while True:
        found = [
            f"{process}: {_read(process, 'cmdline').replace(chr(0), ' ')[:200]}"
            for process in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
            if str(folder) in _read(process, "environ") and not _descends(process, parent)
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def _descends(process: int, parent: int | None) -> bool:
    while process > 1:
        if process == parent:
            return True
        fields = _read(process, "stat").rpartition(")")[2].split()
        process = int(fields[1]) if fields else 0
    return process == 0  # it has ended


def _read(process: int, name: str) -> str:
    try:
        return Path(f"/proc/{process}/{name}").read_text(errors="replace")
    except OSError:
        return ""
