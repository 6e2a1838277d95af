"""The weights of cards that write together: adapters on one base, or whole models of one shape, stacked.

What is stacked stays in memory as long as the budget allows; the cards' own files are read again when needed.
"""

import os
from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kcard.cards.format.folder import Card
from kcard.cards.lm import weights
from kcard.cards.lm.engine import lora, trees, whole
from kcard.cards.lm.engine.decoder import Decoder
from kcard.cards.lm.engine.packed import packed
from kcard.cards.lm.loader import Loader

__all__ = ["Adapters", "FullModels", "Stack", "read_ahead"]

# Stacks that are kept of one base or architecture: pools are mostly asked as a whole, or a few cards of theirs.
MOST = 4


class Stack(Protocol):
    """Where the weights of a group's cards come from; a card is named by its folder."""

    def decoder(self, folders: Sequence[Path]) -> Decoder:
        """Of these cards, in this order."""
        ...

    def base(self) -> Decoder | None:
        """What adapters stand on; None for whole models."""
        ...

    def fitting(self, folders: Sequence[Path]) -> int:
        """How many of them, from the first on, may be in memory at once: at least one."""
        ...


@dataclass(frozen=True)
class _Kept:
    """The stacks that were made last, by whose they are, and of adapters the base that they stand on."""

    base: Decoder | None
    stacks: dict[tuple[Path, ...], Decoder] = field(default_factory=dict)

    @property
    def size(self) -> int:
        shared = 0 if self.base is None else trees.size(self.base)
        return shared + sum(trees.size(stack) - shared for stack in self.stacks.values())

    def find(self, folders: Sequence[Path]) -> Decoder | None:
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
    """LoRA adapters on one base, that of `card`. `ranks`: of each card's adapter, by module."""

    models: Loader
    card: Card
    ranks: dict[Path, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def on(cls, base: Decoder, card: Card, models: Loader) -> "Adapters":
        """Where the base of the card was read already."""
        made = cls(models, card)
        made._keep(_Kept(base))
        return made

    def add(self, folder: Path) -> None:
        """Take a card's adapter; Unsupported where it can't be stacked on the base."""
        base = self.base()
        adapter = lora.read(folder, base.embed.table.dtype)
        lora.check_fit(base, adapter)
        self.ranks[folder] = adapter.ranks

    def base(self) -> Decoder:
        base = self._kept().base
        assert base is not None
        return base

    def decoder(self, folders: Sequence[Path]) -> Decoder:
        kept = self._kept()
        if (found := kept.find(folders)) is not None:
            return found
        base, memory = self.base(), self.models.held
        needed = lora.added(base, [self.ranks[folder] for folder in folders])
        kept.shed(needed, memory.limit)
        self._keep(kept)
        memory.make_room(needed)
        dtype = base.embed.table.dtype
        made = lora.stacked(base, [lora.read(folder, dtype) for folder in folders])
        kept.stacks[tuple(folders)] = made
        self._keep(kept)
        return made

    def fitting(self, folders: Sequence[Path]) -> int:
        base = self.base()
        free = self.models.held.limit - trees.size(base)

        def needed(count: int) -> int:
            return lora.added(base, [self.ranks[folder] for folder in folders[:count]])

        if needed(len(folders)) <= free:
            return len(folders)
        return max(1, bisect_right(range(len(folders) + 1), free, key=needed) - 1)

    @property
    def _key(self) -> Hashable:
        base = self.card.manifest.base
        return "base", base.name, base.revision

    def _kept(self) -> _Kept:
        kept: _Kept | None = self.models.held.get(self._key)
        if kept is None:
            kept = _Kept(packed(weights.read(self.card, self.models).decoder))
            self._keep(kept)
        return kept

    def _keep(self, kept: _Kept) -> None:
        self.models.held.put(self._key, kept, kept.size)


@dataclass(frozen=True)
class _Full:
    """A card with a model of its own; `size`: its bytes, `vocabulary`: its tokens."""

    card: Card
    size: int
    vocabulary: int


@dataclass(frozen=True)
class FullModels:
    """Whole models of one architecture signature."""

    models: Loader
    key: Hashable
    cards: dict[Path, _Full] = field(default_factory=dict)

    def add(self, card: Card, decoder: Decoder) -> None:
        """Take a card, whose model was just read and is kept as long as memory allows."""
        self.models.held.put(card.folder, decoder, trees.size(decoder))
        self.cards[card.folder] = _Full(card, whole.size(decoder), whole.vocabulary(decoder))

    def base(self) -> None:
        return None

    def decoder(self, folders: Sequence[Path]) -> Decoder:
        memory = self.models.held
        kept: _Kept = memory.get(self.key) or _Kept(None)
        if (found := kept.find(folders)) is not None:
            return found
        if len(folders) == 1:
            return self._lone(folders[0], kept)
        needed = self._each(folders) * len(folders)
        kept.shed(needed, memory.limit)
        memory.put(self.key, kept, kept.size)
        memory.make_room(needed)
        vocabularies = [self.cards[folder].vocabulary for folder in folders]
        made = whole.joined((memory.get(folder) or self._read(folder) for folder in folders), vocabularies)
        for folder in folders:
            memory.drop(folder)
        kept.stacks[tuple(folders)] = made
        memory.put(self.key, kept, kept.size)
        return made

    def fitting(self, folders: Sequence[Path]) -> int:
        return max(1, min(len(folders), self.models.held.limit // self._each(folders)))

    def _each(self, folders: Sequence[Path]) -> int:
        """Bytes of a card in their stack, which are those of the largest."""
        return max(self.cards[folder].size for folder in folders)

    def _lone(self, folder: Path, kept: _Kept) -> Decoder:
        for folders, joined in kept.stacks.items():
            if folder in folders:
                number = folders.index(folder)
                return whole.part(joined, number, number + 1, len(folders))
        memory = self.models.held
        found: Decoder | None = memory.get(folder)
        if found is None:
            memory.make_room(self.cards[folder].size)
            found = self._read(folder)
            memory.put(folder, found, trees.size(found))
        return found

    def _read(self, folder: Path) -> Decoder:
        return weights.read(self.cards[folder].card, self.models).decoder


def read_ahead(folders: Sequence[Path]) -> None:
    """Tell the operating system which weights are read next, so that it fetches them while others write."""
    if not hasattr(os, "posix_fadvise"):  # macOS, Windows
        return
    for folder in folders:
        for path in [*folder.glob("*.safetensors"), *folder.glob("*.bin")]:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
