"""How a model is trained, as far as it does not change the result: where, in how many parts and processes."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["Execution", "forked_rng"]

MICRO_TOKENS = 8192


@dataclass(frozen=True)
class Execution:
    """How training runs.

    device         cpu, cuda or cuda:N; None: a GPU where there is one
    micro_batch    rows that go through the model at once; None: as many as hold about 8,192 tokens
    checkpointing  whether activations are computed again in the backward pass instead of kept (Chen et al., 2016)
    processes      among which batches are divided
    """

    device: str | None = None
    micro_batch: int | None = None
    checkpointing: bool = False
    processes: int = 1

    def place(self, local_rank: int = 0) -> str:
        """The device of the process with this number on its machine. UsageError for one that is not there."""
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
        """Rows of `longest` tokens that go through the model at once."""
        return self.micro_batch or max(1, MICRO_TOKENS // longest)


def forked_rng(device: "torch.device") -> AbstractContextManager[None]:
    """A context after which random numbers go on as if nothing had been drawn; it leaves other GPUs alone."""
    import torch

    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
