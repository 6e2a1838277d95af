"""Execution of a training run: processes, devices, precision, and the package of its optimizer."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from kcard import system
from kcard.config import launch
from kcard.errors import MissingExtra, UsageError

if TYPE_CHECKING:
    import torch


def bf16(device: str) -> bool:
    """Return whether `device` multiplies bfloat16 in hardware; emulated, it is slower than float32."""
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return system.multiplies_bf16()


def autocast(device: str) -> "torch.autocast":
    """Return a context of mixed precision if that is faster, otherwise one that changes nothing."""
    import torch

    return torch.autocast(device, dtype=torch.bfloat16, enabled=bf16(device))


@contextmanager
def one_thread(applies: bool = True) -> Iterator[None]:
    """Use one core inside the context, if this `applies`.

    Matrices of 128 columns gain little from a second core, sums are added in the same order every time, and the other
    cores are free for other cards.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1 if applies else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


MICRO_TOKENS = 8192


@dataclass(frozen=True)
class Execution:
    """How training runs.

    device         cpu, cuda or cuda:N; None: a GPU if there is one
    micro_batch    rows that go through the model at once; None: about 8,192 tokens
    checkpointing  whether activations are recomputed in the backward pass instead of kept (Chen et al., 2016)
    processes      among which batches are divided
    """

    device: str | None = None
    micro_batch: int | None = None
    checkpointing: bool = False
    processes: int = 1

    def place(self, local_rank: int = 0) -> str:
        """Return the device of the process with this local rank. Raises UsageError for a missing one."""
        import torch

        count = torch.cuda.device_count()
        chosen = self.device or ("cuda" if count else "cpu")
        kind, _, number = chosen.partition(":")
        if kind not in ("cpu", "cuda") or (number and not number.isdigit()) or chosen == "cpu:":
            raise UsageError(f"device {chosen!r} is unknown: choose cpu, cuda or cuda:N")
        if kind == "cpu":
            return kind
        if number and self.processes > 1:
            raise UsageError(
                f"device {chosen!r} is one GPU for {self.processes} processes: choose cuda or cpu"
            )
        index = int(number) if number else local_rank
        if index >= count:
            needed = (
                f"{self.processes} processes on cuda need a GPU each" if local_rank else f"device {chosen!r}"
            )
            raise UsageError(f"{needed}, but {count} GPUs were found: choose cpu or another number")
        return f"cuda:{index}" if number or self.processes > 1 else kind

    def rows(self, longest: int) -> int:
        """Return how many rows of `longest` tokens go through the model at once."""
        return self.micro_batch or max(1, MICRO_TOKENS // longest)

    def micro_batch_rows(self, batch_size: int, longest: int) -> int:
        """Return the rows of a micro-batch in each process: as many as fit that divide the batch evenly.

        Raises UsageError where the processes can't share a batch.
        """
        share, rest = divmod(batch_size, self.processes)
        if rest:
            raise UsageError(
                f"batch_size {batch_size} can't be divided evenly among {self.processes} processes: "
                f"choose a multiple of {self.processes}"
            )
        return next(rows for rows in range(min(self.rows(longest), share), 0, -1) if share % rows == 0)


OptimizerName = Literal["adamw", "adamw8bit", "paged-adamw8bit"]


def check_optimizer(name: OptimizerName) -> None:
    """Raise MissingExtra if the optimizer's package is not installed."""
    from importlib.util import find_spec

    if name != "adamw" and find_spec("bitsandbytes") is None:
        raise MissingExtra(f"optimizer {name} needs bitsandbytes: pip install 'kcard[8bit]'")


# Several processes, which `accelerate launch` or torchrun started: rank 0 reads, reports and writes, and the others
# take part in its training.

MAX_WAIT = timedelta(days=3)  # while rank 0 reads and tokenises a large corpus

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


def forked_rng(device: "torch.device") -> AbstractContextManager[None]:
    """Return a context that restores the random state on exit; other GPUs are left alone."""
    import torch

    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
