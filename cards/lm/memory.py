"""How much of the memory cards may take: when a budget is reached, what was used least leaves."""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from kcard.errors import ModelUnavailable, UsageError
from kcard.sizes import shown_size

__all__ = ["Memory", "device_bytes", "share"]

SHARE = 0.5
AGE = 1000  # uses after which all of them count half


@dataclass
class Memory:
    """What is loaded, by name. `budget`: bytes of weights; None: half of what the device has.

    What was put or used least often leaves first, of those used equally often the one used longest ago. How often
    something was used is remembered when it has left.

    used    bytes of all that is there
    """

    budget: int | None = None
    device: str = "cpu"
    used: int = field(default=0, init=False)
    _entries: "OrderedDict[Hashable, tuple[Any, int]]" = field(default_factory=OrderedDict, init=False)
    _uses: "Counter[Hashable]" = field(default_factory=Counter, init=False)
    _total: int = field(default=0, init=False)
    _given: bool = field(init=False)

    def __post_init__(self) -> None:
        self._given = self.budget is not None
        if self.budget is not None and self.budget < 1:
            raise UsageError(f"memory is {self.budget}: it must be at least 1 byte, or left out")

    @property
    def limit(self) -> int:
        """Bytes."""
        if self.budget is None:
            self.budget = share(self.device)
        return self.budget

    def check(self, what: str, size: int) -> None:
        """Raise ModelUnavailable for what does not fit alone: into the budget, or the device if none was given."""
        most = self.limit if self._given else device_bytes(self.device)
        if size > most:
            there = "--memory is" if self._given else f"device {self.device} has"
            remedy = f"set --memory to {size} bytes or more" if self._given else "use a larger device"
            raise ModelUnavailable(
                f"{what} needs {shown_size(size)} for its weights, but {there} {shown_size(most)}: {remedy}"
            )

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def get(self, key: Hashable) -> Any:
        """What has that name, now the last used; None where nothing has."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        value, size = self._entries[key]
        self._count(key, size)
        return value

    def peek(self, key: Hashable) -> Any:
        """The same, without using it."""
        return self._entries.get(key, (None, 0))[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep it under that name, as the last used."""
        self.drop(key)
        self._entries[key] = (value, size)
        self.used += size
        self._count(key, size)
        self._leave(self.limit, key)

    def make_room(self, size: int) -> None:
        """Let so many bytes fit, before they are there."""
        self._leave(self.limit - size)

    def drop(self, key: Hashable) -> None:
        """Let go of what has that name, if it is there."""
        self.used -= self._entries.pop(key, (None, 0))[1]

    def _count(self, key: Hashable, size: int) -> None:
        if not size:
            return
        self._uses[key] += 1
        self._total += 1
        if self._total > AGE:
            self._uses = Counter({used: times // 2 for used, times in self._uses.items() if times > 1})
            self._total = self._uses.total()

    def _leave(self, limit: int, kept: Hashable = None) -> None:
        """Drop what was used least, but for the name `kept`, until the limit is reached. What takes no room stays."""
        if self.used <= limit:
            return
        sized = [key for key, (_, size) in self._entries.items() if size and key != kept]
        for key in sorted(sized, key=lambda key: self._uses[key]):
            if self.used > limit:
                self.drop(key)


def share(device: str) -> int:
    """Half of the memory that the device has, in bytes."""
    return int(device_bytes(device) * SHARE)


def device_bytes(device: str) -> int:
    """The memory that the device has."""
    if device != "cpu":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    import os

    if not hasattr(os, "sysconf"):  # Windows
        return 16 * 1024**3
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
