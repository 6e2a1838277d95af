"""The second level of the memory of cards: models that left the device, in the memory of the host.

For a GPU the copies are pinned, so that it fetches them by itself while a card writes.
"""

import logging
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kcard.cards.lm.engine import trees
from kcard.cards.lm.engine.decoder import Decoder
from kcard.cards.lm.memory import Memory, device_bytes

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["HostMemory", "host_share", "on_device"]

SHARE = 0.25


@dataclass
class HostMemory:
    """Copies of whole models that were on the `device`, `budget` bytes of them.

    What is expected stays; of the rest, copies of models that are on the device again leave first, then those that
    were used least. Pinned memory is counted as torch allocates it, in powers of two for each tensor.
    """

    budget: int
    device: Memory
    memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = Memory(self.budget)

    @property
    def pinned(self) -> bool:
        return self.device.device != "cpu"

    def peek(self, key: Hashable) -> Decoder | None:
        """The copy, if there is one."""
        found: Decoder | None = self.memory.peek(key)
        return found

    def returned(self, key: Hashable) -> None:
        """Its model is on the device again: the copy need not stay."""
        self.memory.get(key)
        self.memory.expected.discard(key)

    def keep(self, key: Hashable, value: Any) -> None:
        """Copy a model that leaves the device, if there is room for it."""
        if not isinstance(value, Decoder) or self.memory.get(key) is not None:
            return
        size = trees.size(value, rounded=self.pinned)
        for other in [other for other in self.memory if other in self.device]:
            if self.memory.used + size > self.memory.limit:
                self.memory.drop(other)
        if not self.memory.reserve(size):
            return
        try:
            copy = trees.mapped(value, self._copied)
        except RuntimeError as error:  # what torch raises where no more memory can be pinned
            logging.getLogger(__name__).warning("weights can't be kept in the memory of the host: %s", error)
            return
        finally:
            self.memory.release(size)
        self.memory.put(key, copy, size)

    def _copied(self, tensor: "Tensor") -> "Tensor":
        import torch

        return torch.empty_like(tensor, device="cpu", pin_memory=self.pinned).copy_(tensor)


def on_device(decoder: Decoder, device: str) -> Decoder:
    """A model in the host's memory on the device; it is there when this returns. For any thread.

    On a GPU the copies run on a stream of their own, beside the products of the card that writes, into memory of the
    stream that will use it. A card writes until its documents are in the host's memory, so that no product of it is
    pending when its memory is used again.
    """
    if device == "cpu":
        return decoder
    import torch

    pairs: list[tuple[Tensor, Tensor]] = []

    def room(tensor: "Tensor") -> "Tensor":
        pairs.append((tensor, torch.empty_like(tensor, device=device, pin_memory=False)))
        return pairs[-1][1]

    made = trees.mapped(decoder, room)
    aside = torch.cuda.Stream(device)
    aside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(aside):
        for tensor, target in pairs:
            target.copy_(tensor, non_blocking=True)
    aside.synchronize()
    return made


def host_share(device: str) -> int:
    """A quarter of the host's memory for a GPU, in bytes; nothing for a CPU, whose cards are in that memory."""
    return 0 if device == "cpu" else int(device_bytes("cpu") * SHARE)
