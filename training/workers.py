"""Worker processes (ranks 1..n-1) of distributed training.

`python -m kcard.training.workers FOLDER RANK COUNT DEVICE THREADS` runs one of them.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kcard.config import launch, loopback
from kcard.errors import TrainingInterrupted
from kcard.training.execution import STOP, Execution, Processes, join_group
from kcard.training.output import remedy

__all__ = ["dismiss", "follow", "follow_launcher", "processes_of"]

COMMAND = (sys.executable, "-m", "kcard.training.workers")
STORE = "store"
GRACE = 20.0  # seconds that a process has to end


@contextmanager
def processes_of(execution: Execution) -> Iterator[Processes | None]:
    """Start the processes that train together, of which this is rank 0; yield None if it trains alone.

    On exit the others are stopped. Raises UsageError if a device is missing.
    """
    rank, count, local = launch()
    if execution.processes == 1:
        yield None
    elif count > 1:
        processes = join_group(rank, count, execution.place(local))
        with _stopping(processes):
            yield processes
        processes.leave()
    else:
        with _start_workers(execution) as processes, _stopping(processes):
            yield processes


@contextmanager
def _stopping(processes: Processes) -> Iterator[None]:
    """Stop the other ranks on exit and after Ctrl-C. After an error they stop by themselves, once rank 0 has ended."""
    try:
        yield
        processes.send(STOP)
    except TrainingInterrupted:
        with suppress(RuntimeError):  # the interruption may be the loss of another process
            processes.send(STOP)
        raise
    except RuntimeError as error:
        if lost := processes.describe_loss(error):
            raise TrainingInterrupted(f"{lost}; {remedy()}") from error
        raise


def follow_launcher(execution: Execution) -> None:
    """Follow rank 0 in a process that `accelerate launch` or torchrun started."""
    rank, count, local = launch()
    follow(join_group(rank, count, execution.place(local)))


def dismiss(execution: Execution) -> None:
    """End the processes that a launcher started, after a training run that did not need them."""
    with processes_of(execution):
        pass


def follow(processes: Processes) -> None:
    """Execute the commands of rank 0 until STOP. Only rank 0 handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    begin = processes.receive()
    if begin != STOP:
        from kcard.training.finetune import make_job

        job = make_job(begin, processes.device, processes)
        job.modules["model"].train()
        while (command := processes.receive()) != STOP:
            function, args, kwargs = command
            function(job, *args, **kwargs)
    processes.leave()


@contextmanager
def _start_workers(execution: Execution) -> Iterator[Processes]:
    """Start ranks 1..n-1, and wait for them on exit; those that do not end in time are killed."""
    import torch

    count, threads = execution.processes, torch.get_num_threads()
    places = [execution.place(rank) for rank in range(count)]
    each = max(1, (os.cpu_count() or 1) // count)
    with tempfile.TemporaryDirectory(prefix="kcard-") as path, loopback():
        folder = Path(path)
        # Start the others, with their output in a file, and in a session of their own, which Ctrl-C does not reach.
        others = []
        for rank in range(1, count):
            command = [*COMMAND, str(folder), str(rank), str(count), places[rank], str(each)]
            with _log_file(folder, rank).open("wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            others.append(process)
        try:
            if places[0] == "cpu":
                torch.set_num_threads(each)
            # Wait until all are ready, since torch would silently wait for a process that has failed.
            while not all(_ready_file(folder, rank).exists() for rank in range(1, count)):
                if ended := _describe_end(others, folder):
                    raise TrainingInterrupted(f"{ended} before the first step")
                time.sleep(0.05)
            processes = join_group(0, count, places[0], folder / STORE, lambda: _describe_end(others, folder))
            yield processes
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


def _ready_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.ready"


def _log_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.log"


def _describe_end(others: "list[subprocess.Popen[bytes]]", folder: Path) -> str:
    """Return in words which process failed, and how; "" if none did."""
    for rank, process in enumerate(others, 1):
        if code := process.poll():
            if code < 0:
                return f"training process {rank} was killed ({signal.Signals(-code).name})"
            lines = _log_file(folder, rank).read_text(errors="replace").strip().splitlines()
            return f"training process {rank} failed ({lines[-1] if lines else f'exit code {code}'})"
    return ""


def main(arguments: list[str]) -> None:
    import torch

    folder, rank, count, device, threads = arguments
    if device == "cpu":
        torch.set_num_threads(int(threads))
    _ready_file(Path(folder), int(rank)).touch()
    with loopback():
        processes = join_group(int(rank), int(count), device, Path(folder) / STORE)
    follow(processes)


if __name__ == "__main__":
    main(sys.argv[1:])
