"""The weights of cards that write together: adapters on one base, or whole models of one shape, stacked.

What is stacked stays in memory as long as the budget allows; the cards' own files are read again when needed.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kcard.cards.format.folder import Card
from kcard.cards.lm.engine import adapters, stack, trees, whole
from kcard.cards.lm.memory import Memory

if TYPE_CHECKING:
    from kcard.cards.lm.engine.decoder import Decoder

__all__ = ["Adapters", "FullModels", "Stack", "Whole", "read_ahead"]

# Stacks that are kept of one base or kinship: pools are mostly asked as a whole, or a few cards of theirs.
MOST = 4


class Stack(Protocol):
    """Where the weights of a group's cards come from; a card is named by its folder."""

    def decoder(self, folders: Sequence[Path]) -> "Decoder":
        """Of these cards, in this order."""
        ...

    def base(self) -> "Decoder | None":
        """What adapters stand on; None for whole models."""
        ...

    def fitting(self, folders: Sequence[Path]) -> int:
        """How many of them, from the first on, may be in memory at once: at least one."""
        ...


@dataclass(frozen=True)
class _Kept:
    """The stacks that were made last, by whose they are, and of adapters the base that they stand on."""

    base: "Decoder | None"
    stacks: "dict[tuple[Path, ...], Decoder]" = field(default_factory=dict)

    @property
    def size(self) -> int:
        shared = 0 if self.base is None else trees.size(self.base)
        return shared + sum(trees.size(stack) - shared for stack in self.stacks.values())

    def find(self, folders: Sequence[Path]) -> "Decoder | None":
        """Their stack, if it is there, now the last used."""
        if (found := self.stacks.pop(tuple(folders), None)) is not None:
            self.stacks[tuple(folders)] = found
        return found

    def shed(self, needed: int, limit: int) -> None:
        """Let go of stacks until there are fewer than MOST and so many more bytes are within the limit."""
        while self.stacks and (len(self.stacks) >= MOST or self.size + needed > limit):
            del self.stacks[next(iter(self.stacks))]


@dataclass(frozen=True)
class Adapters:
    """LoRA adapters on one base, which `load` reads. `ranks`: of each card's adapter, by module."""

    memory: Memory
    key: Hashable
    load: "Callable[[], Decoder]"
    ranks: dict[Path, Mapping[str, int]]

    def begin(self, base: "Decoder") -> None:
        """Take the base that was read already."""
        self._keep(_Kept(base))

    def base(self) -> "Decoder":
        base = self._kept().base
        assert base is not None
        return base

    def decoder(self, folders: Sequence[Path]) -> "Decoder":
        kept = self._kept()
        if (found := kept.find(folders)) is not None:
            return found
        base = self.base()
        needed = stack.added(base, [self.ranks[folder] for folder in folders])
        kept.shed(needed, self.memory.limit)
        self._keep(kept)
        self.memory.make_room(needed)
        dtype = base.embed.table.dtype
        made = stack.stacked(base, [adapters.read(folder, dtype) for folder in folders])
        kept.stacks[tuple(folders)] = made
        self._keep(kept)
        return made

    def fitting(self, folders: Sequence[Path]) -> int:
        base = self.base()
        room = self.memory.limit - trees.size(base)

        def needed(count: int) -> int:
            return stack.added(base, [self.ranks[folder] for folder in folders[:count]])

        if needed(len(folders)) <= room:
            return len(folders)
        return max(1, bisect_right(range(len(folders) + 1), room, key=needed) - 1)

    def _kept(self) -> _Kept:
        kept: _Kept | None = self.memory.get(self.key)
        if kept is None:
            kept = _Kept(self.load())
            self._keep(kept)
        return kept

    def _keep(self, kept: _Kept) -> None:
        self.memory.put(self.key, kept, kept.size)


@dataclass(frozen=True)
class Whole:
    """A card with a model of its own; `size`: its bytes, `vocabulary`: its tokens."""

    card: Card
    size: int
    vocabulary: int


@dataclass(frozen=True)
class FullModels:
    """Whole models of one kinship; `load` reads one of `cards`, by their folders."""

    memory: Memory
    key: Hashable
    load: "Callable[[Card], Decoder]"
    cards: "dict[Path, Whole]"

    def base(self) -> None:
        return None

    def decoder(self, folders: Sequence[Path]) -> "Decoder":
        kept: _Kept = self.memory.get(self.key) or _Kept(None)
        if (found := kept.find(folders)) is not None:
            return found
        if len(folders) == 1:
            return self._lone(folders[0], kept)
        needed = self._each(folders) * len(folders)
        kept.shed(needed, self.memory.limit)
        self.memory.put(self.key, kept, kept.size)
        self.memory.make_room(needed)
        vocabularies = [self.cards[folder].vocabulary for folder in folders]
        made = whole.joined((self._read(folder) for folder in folders), vocabularies)
        for folder in folders:
            self.memory.drop(folder)
        kept.stacks[tuple(folders)] = made
        self.memory.put(self.key, kept, kept.size)
        return made

    def fitting(self, folders: Sequence[Path]) -> int:
        return max(1, min(len(folders), self.memory.limit // self._each(folders)))

    def _each(self, folders: Sequence[Path]) -> int:
        """Bytes of a card in their stack, which are those of the largest."""
        return max(self.cards[folder].size for folder in folders)

    def _lone(self, folder: Path, kept: _Kept) -> "Decoder":
        for folders, joined in kept.stacks.items():
            if folder in folders:
                number = folders.index(folder)
                return whole.part(joined, number, number + 1, len(folders))
        if folder not in self.memory:
            self.memory.make_room(self.cards[folder].size)
        found: Decoder = self.memory.hold(folder, lambda: self.load(self.cards[folder].card), trees.size)
        return found

    def _read(self, folder: Path) -> "Decoder":
        found: Decoder | None = self.memory.get(folder)
        return self.load(self.cards[folder].card) if found is None else found


def read_ahead(folders: Sequence[Path]) -> None:
    """Tell the operating system which weights are read next, so that it fetches them while others write."""
    if not hasattr(os, "posix_fadvise"):  # macOS, Windows
        return
    for folder in folders:
        for path in [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
