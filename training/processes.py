"""Several processes that train one model: rank 0 reads, reports and writes, the others follow it.

Rank 0 starts the others itself (kcard.training.following), or `accelerate launch` or torchrun started them all.
Before everything that the processes do together, rank 0 says what it is, so that only it knows the corpus.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["STOP", "Processes", "joined"]

STOP = "stop"
PATIENCE = timedelta(days=3)  # the others wait while rank 0 reads and tokenises a large corpus
NOTICE = 5.0  # seconds after which a process that ended is known to have
# Words of the errors of gloo and NCCL where another process is gone.
LOST = ("gloo", "Connection", "NCCL", "connect")


@dataclass(frozen=True)
class Processes:
    """One of `count` processes, with its `device`.

    ended  how one of the others ended, in words, as far as rank 0 knows; "" where none did
    group  of torch.distributed, in which the devices exchange tensors
    """

    rank: int
    count: int
    device: str
    ended: Callable[[], str] = str
    group: Any = None

    def lost(self, error: Exception) -> str:
        """Which other process was lost, in words, where `error` is due to that; else ""."""
        deadline = time.monotonic() + NOTICE
        while not (known := self.ended()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return known or ("another training process ended" if any(word in str(error) for word in LOST) else "")

    def tell(self, command: Any) -> None:
        """From rank 0 to all others: what is done together next."""
        from torch.distributed import broadcast_object_list

        broadcast_object_list([command], src=0, device=_cpu())

    def hear(self) -> Any:
        """What rank 0 told."""
        from torch.distributed import broadcast_object_list

        heard: list[Any] = [None]
        broadcast_object_list(heard, src=0, device=_cpu())
        return heard[0]

    def total(self, *numbers: float) -> list[float]:
        """The sums of numbers over all processes."""
        import torch

        sums = torch.tensor(numbers, dtype=torch.float64)
        torch.distributed.all_reduce(sums)
        found: list[float] = sums.tolist()
        return found

    def sum_gradients(self, weights: "Iterable[Tensor]") -> None:
        """Add up the gradients of weights that every process has whole; FSDP adds those of divided ones."""
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
        """End the group; what is told afterwards reaches nobody."""
        import torch

        torch.distributed.destroy_process_group()


def joined(
    rank: int,
    count: int,
    device: str,
    store: Path | None = None,
    ended: Callable[[], str] = str,
) -> Processes:
    """Meet the other processes: by the file `store`, or as the launcher's environment says."""
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
