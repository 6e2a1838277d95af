"""How much of the memory cards may take: what was used longest ago leaves when a budget is reached."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from kcard.errors import UsageError

__all__ = ["Memory", "share"]

SHARE = 0.5


@dataclass
class Memory:
    """What is loaded, by name. `budget`: bytes of weights; None: half of what the device has.

    A single thing may be larger than the budget: then it is there alone. `used`: bytes of all that is there.
    """

    budget: int | None = None
    device: str = "cpu"
    used: int = field(default=0, init=False)
    _entries: "OrderedDict[Hashable, tuple[Any, int]]" = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        if self.budget is not None and self.budget < 1:
            raise UsageError(f"memory is {self.budget}: it must be at least 1 byte, or left out")

    @property
    def limit(self) -> int:
        """Bytes."""
        if self.budget is None:
            self.budget = share(self.device)
        return self.budget

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def get(self, key: Hashable) -> Any:
        """What has that name, now the last used; None where nothing has."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep it under that name, as the last used."""
        self.drop(key)
        self._entries[key] = (value, size)
        self.used += size
        self._leave(self.limit, 1)

    def make_room(self, size: int) -> None:
        """Let so many bytes fit, before they are there."""
        self._leave(self.limit - size, 0)

    def drop(self, key: Hashable) -> None:
        """Let go of what has that name, if it is there."""
        self.used -= self._entries.pop(key, (None, 0))[1]

    def _leave(self, limit: int, kept: int) -> None:
        """Down to the limit, but for so many of the last used. What takes no room stays."""
        if self.used <= limit:
            return
        sized = [key for key, (_, size) in self._entries.items() if size]
        for key in sized[: len(sized) - kept]:
            if self.used > limit:
                self.drop(key)


def share(device: str) -> int:
    """Half of the memory that the device has, in bytes."""
    if device != "cpu":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory * SHARE)
    import os

    if not hasattr(os, "sysconf"):  # Windows
        return 8 * 1024**3
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * SHARE)
