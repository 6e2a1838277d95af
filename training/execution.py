"""Execution of a training run: processes, devices, precision."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcard.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from kcard.training.epochs import TrainingExample
    from kcard.training.loop import Job

__all__ = [
    "STOP",
    "Execution",
    "Processes",
    "autocast",
    "bf16",
    "forked_rng",
    "free",
    "gather",
    "gather_weights",
    "join_group",
    "mean_loss",
    "one_thread",
    "share_of",
]


# The number format in which a machine trains.


def bf16(device: str) -> bool:
    """Return whether `device` multiplies bfloat16 in hardware; emulated, it is slower than float32."""
    import torch

    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has = torch.cpu.get_capabilities()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16") or has.get("bf16"))


def autocast(device: str) -> "torch.autocast":
    """Return a context of mixed precision if that is faster, otherwise one that changes nothing."""
    import torch

    return torch.autocast(device, dtype=torch.bfloat16, enabled=bf16(device))


# The number of cores that a training run uses.


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one core inside the context.

    Matrices of 128 columns gain little from a second core, sums are added in the same order every time, and the other
    cores are free for other cards.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Several processes that train one model: rank 0 reads, reports and writes, the others follow it.
#
# Rank 0 starts the others itself (kcard.training.workers), unless `accelerate launch` or torchrun started them all.
# Rank 0 announces everything that the processes do together, so that only it needs the corpus.

STOP = "stop"
PATIENCE = timedelta(days=3)  # the others wait while rank 0 reads and tokenises a large corpus
NOTICE = 5.0  # seconds within which rank 0 learns that a process has ended
# Words in the errors of gloo and NCCL after another process has ended.
LOST = ("gloo", "Connection", "NCCL", "connect")


@dataclass(frozen=True)
class Processes:
    """One of `count` processes, with its `device`.

    ended  returns how one of the others ended, in words, as far as rank 0 knows; "" if none did
    group  of torch.distributed, in which the devices exchange tensors
    """

    rank: int
    count: int
    device: str
    ended: Callable[[], str] = str
    group: Any = None

    def describe_loss(self, error: Exception) -> str:
        """Return in words which other process was lost, if `error` is due to that; else ""."""
        deadline = time.monotonic() + NOTICE
        while not (reason := self.ended()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return reason or (
            "another training process ended" if any(word in str(error) for word in LOST) else ""
        )

    def send(self, command: Any) -> None:
        """Announce from rank 0 to all others what they do together next."""
        from torch.distributed import broadcast_object_list

        broadcast_object_list([command], src=0, device=_cpu())

    def receive(self) -> Any:
        """Receive what rank 0 sent."""
        from torch.distributed import broadcast_object_list

        commands: list[Any] = [None]
        broadcast_object_list(commands, src=0, device=_cpu())
        return commands[0]

    def total(self, *numbers: float) -> list[float]:
        """Return the sums of numbers over all processes."""
        import torch

        sums = torch.tensor(numbers, dtype=torch.float64)
        torch.distributed.all_reduce(sums)
        totals: list[float] = sums.tolist()
        return totals

    def sum_gradients(self, weights: "Iterable[Tensor]") -> None:
        """Sum the gradients of weights that every process has whole; FSDP sums those of sharded ones."""
        import torch
        from torch.distributed.tensor import DTensor

        group = self.group
        whole = [weight for weight in weights if not isinstance(weight, DTensor)]
        for weight in whole:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
        if whole:
            gradients = [torch.as_tensor(weight.grad) for weight in whole]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            torch.distributed.all_reduce(flat, group=group)
            for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(summed.view_as(gradient))

    def leave(self) -> None:
        """Leave the group; nothing can be sent afterwards."""
        import torch

        torch.distributed.destroy_process_group()


def join_group(
    rank: int,
    count: int,
    device: str,
    store: Path | None = None,
    ended: Callable[[], str] = str,
) -> Processes:
    """Join the other processes: through the file `store`, or by the launcher's environment."""
    import torch

    where: dict[str, Any] = (
        {} if store is None else {"init_method": store.as_uri(), "rank": rank, "world_size": count}
    )
    torch.distributed.init_process_group("gloo", timeout=PATIENCE, **where)
    group = torch.distributed.group.WORLD
    if device != "cpu":
        torch.cuda.set_device(device)
        group = torch.distributed.new_group(backend="nccl")
    return Processes(rank, count, device, ended, group)


def _cpu() -> Any:
    import torch

    return torch.device("cpu")


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


def forked_rng(device: "torch.device") -> AbstractContextManager[None]:
    """Return a context that restores the random state on exit; other GPUs are left alone."""
    import torch

    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


# What all processes do together besides training steps: gather weights, shard them, measure a loss.


def gather(value: Any) -> Any:
    """Return the value with every sharded tensor in it (FSDP) gathered in the main memory of rank 0."""
    if isinstance(value, Mapping):
        return {key: gather(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(gather, value)]
    if not _is_sharded(value):
        return value
    from torch.distributed import get_rank

    tensor = value.full_tensor()
    return tensor.cpu() if get_rank() == 0 else None


def share_of(saved: Any, like: "Tensor") -> Any:
    """Return this process' shard of a tensor that belongs to the weight `like`, if sharded; else the value itself."""
    if not _is_sharded(like) or getattr(saved, "shape", None) != like.shape:
        return saved
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(saved.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def gather_weights(job: "Job") -> "dict[str, Tensor] | None":
    """Return the model's gathered state if it is sharded; otherwise None, since the model itself has it."""
    model: Any = job.modules["model"]
    if not any(map(_is_sharded, model.parameters())):
        return None
    tied = {*dict(model.named_parameters(remove_duplicate=False))} - {*dict(model.named_parameters())}
    return {name: gather(tensor) for name, tensor in model.state_dict().items() if name not in tied}


def free(job: "Job") -> None:
    """Release the memory of weights, gradients and optimizer states once they are saved: the card is loaded next, on
    the same device."""
    import torch

    for optimizer in job.optimizers:
        optimizer.zero_grad(set_to_none=True)
        optimizer.param_groups.clear()
        vars(optimizer)["state"].clear()
    model: Any = job.modules["model"]
    if not any(map(_is_sharded, model.parameters())):
        model.to("meta")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def mean_loss(job: "Job", batch: "Sequence[TrainingExample]") -> float:
    """Return the mean loss per token, without learning."""
    import torch

    job.modules["model"].eval()
    with torch.no_grad():
        loss = sum(part.item() for part, _ in job.losses(batch))
    return loss if job.processes is None else job.processes.total(loss)[0]


def _is_sharded(value: Any) -> bool:
    import sys

    tensors = sys.modules.get("torch.distributed.tensor")
    return tensors is not None and isinstance(value, tensors.DTensor)
