"""Worker processes (ranks 1..n-1) of distributed training.

kcard starts them itself (`python -m kcard.training.workers RANK FOLDER DEVICE`), or `accelerate launch` or torchrun
started them all. Rank 0 reads, reports and writes; the others take part in its training (kcard.training.trainer).
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from kcard.config import launch, loopback
from kcard.errors import TrainingInterrupted
from kcard.training.execution import Execution

COMMAND = (sys.executable, "-m", "kcard.training.workers")
READY, LOG = "rank-{}.ready", "rank-{}.log"  # files of a process
GRACE = 20.0  # seconds that a process has to end
PATIENCE = timedelta(days=3)  # the others wait while rank 0 reads and tokenises a large corpus
NOTICE = 5.0  # seconds after which a process that ended is known to have
# Words of the errors of gloo and NCCL where another process is gone.
LOST = ("gloo", "Connection", "NCCL", "connect")

T = TypeVar("T")


@dataclass(frozen=True)
class Processes:
    """One of several processes that train together, with its `device`.

    ended  how one of the others ended, in words, as far as rank 0 knows; "" where none did
    """

    device: str
    ended: Callable[[], str] = str

    def describe_loss(self, error: Exception) -> str:
        """Return in words which other process was lost, if `error` is due to that; else ""."""
        deadline = time.monotonic() + NOTICE
        while not (reason := self.ended()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return reason or (
            "another training process ended" if any(word in str(error) for word in LOST) else ""
        )


def broadcast(value: T) -> T:
    """Return rank 0's value in all processes."""
    from torch import device
    from torch.distributed import broadcast_object_list

    values = [value]
    broadcast_object_list(values, src=0, device=device("cpu"))
    return values[0]


@contextmanager
def processes_of(execution: Execution) -> Iterator[Processes | None]:
    """Join the processes among which training is divided, this one being rank 0; yield None where it trains alone.

    They are started here unless a launcher started them. Raises UsageError where a device is missing.
    """
    _, count, local = launch()
    if execution.processes == 1:
        yield None
    elif count > 1:
        yield _join(execution.place(local))
    else:
        with _start_workers(execution) as processes:
            yield processes


def follow_launcher(execution: Execution) -> None:
    """Follow rank 0 in a process that `accelerate launch` or torchrun started."""
    _, _, local = launch()
    _follow(execution.place(local))


def dismiss(execution: Execution) -> None:
    """End the processes that a launcher started, after a training run that did not need them."""
    with processes_of(execution):
        broadcast(None)


def _follow(device: str) -> None:
    from kcard.training.trainer import follow

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only rank 0 handles Ctrl-C
    follow(_join(device))


def _join(device: str, ended: Callable[[], str] = str) -> Processes:
    """Join the processes that the environment names (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)."""
    import torch

    if not torch.distributed.is_initialized():
        if device != "cpu":
            torch.cuda.set_device(device)
        backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
        torch.distributed.init_process_group(backend, timeout=PATIENCE)
    return Processes(device, ended)


@contextmanager
def _start_workers(execution: Execution) -> Iterator[Processes]:
    """Start ranks 1..n-1, and wait for them on exit; those that do not end in time are killed."""
    import torch
    from accelerate.utils import patch_environment

    count, threads = execution.processes, torch.get_num_threads()
    places = [execution.place(rank) for rank in range(count)]
    each = max(1, (os.cpu_count() or 1) // count)
    with tempfile.TemporaryDirectory(prefix="kcard-") as path, loopback():
        folder = Path(path)
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            port: int = listening.getsockname()[1]
        shared = {"WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        # Start the others: output goes into a file; a session of their own, so that Ctrl-C does not reach them.
        others = []
        for rank in range(1, count):
            limits = {"OMP_NUM_THREADS": each} if places[0] == "cpu" else {}
            with (
                (folder / LOG.format(rank)).open("wb") as log,
                patch_environment(**shared, RANK=rank, LOCAL_RANK=rank, **limits),
            ):
                process = subprocess.Popen(
                    [*COMMAND, str(rank), str(folder), places[rank]],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            others.append(process)
        try:
            if places[0] == "cpu":
                torch.set_num_threads(each)
            # Wait until all are ready, since torch would silently wait for a process that has failed.
            while not all((folder / READY.format(rank)).exists() for rank in range(1, count)):
                if ended := _describe_end(others, folder):
                    raise TrainingInterrupted(f"{ended} before the first step")
                time.sleep(0.05)
            with patch_environment(**shared, RANK=0, LOCAL_RANK=0):
                yield _join(places[0], lambda: _describe_end(others, folder))
        finally:
            torch.set_num_threads(threads)
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
            for process in others:
                try:
                    process.wait(GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _describe_end(others: "list[subprocess.Popen[bytes]]", folder: Path) -> str:
    """Return in words which process failed, and how; "" if none did."""
    for rank, process in enumerate(others, 1):
        if code := process.poll():
            if code < 0:
                return f"training process {rank} was killed ({signal.Signals(-code).name})"
            lines = (folder / LOG.format(rank)).read_text(errors="replace").strip().splitlines()
            return f"training process {rank} failed ({lines[-1] if lines else f'exit code {code}'})"
    return ""


def main(arguments: list[str]) -> None:
    rank, folder, device = arguments
    (Path(folder) / READY.format(rank)).touch()
    _follow(device)


if __name__ == "__main__":
    main(sys.argv[1:])
