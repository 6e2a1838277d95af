"""Training in several processes, which `accelerate launch` or torchrun started.

Rank 0 reads, reports and writes; the others take part in its training.
"""

from datetime import timedelta
from typing import TypeVar, cast

from kcard.config import launch
from kcard.training.execution import Execution

# The others wait while rank 0 reads and tokenises a large corpus.
MAX_WAIT = timedelta(days=3)

T = TypeVar("T")


def broadcast(value: T) -> T:
    """Return rank 0's value in all processes."""
    from torch import device
    from torch.distributed import broadcast_object_list

    values = [value]
    broadcast_object_list(values, src=0, device=device("cpu"))
    return values[0]


def join(execution: Execution) -> str:
    """Join the processes that the environment names (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) and return this one's
    device. Raises UsageError where it is missing."""
    import torch

    device = execution.place(launch()[2])
    if not torch.distributed.is_initialized():
        if device != "cpu":
            torch.cuda.set_device(device)
        backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
        torch.distributed.init_process_group(backend, timeout=MAX_WAIT)
    return device


def follow_launcher(execution: Execution) -> None:
    """Follow rank 0 until its training has ended, in another process of a launcher."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only rank 0 handles Ctrl-C
    device = join(execution)
    setup = broadcast(cast("object | None", None))
    if setup is not None:
        from kcard.training.base_trainer import FineTuningSetup, follow

        assert isinstance(setup, FineTuningSetup)
        follow(setup, device)


def dismiss(execution: Execution) -> None:
    """End the processes that a launcher started, after a training run that did not need them."""
    join(execution)
    broadcast(None)
