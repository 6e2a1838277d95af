"""The weights of cards that write together: adapters on one base, or whole models of one shape, stacked.

What is stacked stays in memory as long as the budget allows; the cards' own files are read again when needed.
"""

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kcard.cards.format.folder import Card
from kcard.cards.lm import weights
from kcard.cards.lm.engine import lora, prefix, trees, whole
from kcard.cards.lm.engine.decoder import Decoder
from kcard.cards.lm.engine.packed import packed
from kcard.cards.lm.loader import Loader
from kcard.cards.lm.weights import Weights

__all__ = ["Adapters", "FullModels", "Stack"]

# Stacks of several cards that are kept of one base or architecture: pools are mostly asked as a whole.
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
    """The stacks that were made last, with their own bytes, by whose they are; of adapters, the base that they stand
    on. MOST stacks of several cards are kept, and any number of single cards."""

    base: Decoder | None
    shared: int = 0
    stacks: dict[tuple[Path, ...], tuple[Decoder, int]] = field(default_factory=dict)

    @classmethod
    def on(cls, base: Decoder) -> "_Kept":
        return cls(base, trees.size(base))

    @property
    def size(self) -> int:
        return self.shared + sum(own for _, own in self.stacks.values())

    def find(self, folders: Sequence[Path]) -> Decoder | None:
        """Their stack, if it is there, now the last used."""
        if (found := self.stacks.pop(tuple(folders), None)) is None:
            return None
        self.stacks[tuple(folders)] = found
        return found[0]

    def add(self, folders: Sequence[Path], stack: Decoder) -> None:
        self.stacks[tuple(folders)] = stack, trees.size(stack) - self.shared

    def shed(self, needed: int, limit: int) -> None:
        """Let go of stacks until there is a place for another one and so many more bytes are within the limit."""
        several = [folders for folders in self.stacks if len(folders) > 1]
        for folders in several[: max(0, len(several) - MOST + 1)]:
            del self.stacks[folders]
        while self.stacks and self.size + needed > limit:
            del self.stacks[next(iter(self.stacks))]


class Form(Protocol):
    """A form of adapters: the functions of the modules lora and prefix of kcard.cards.lm.engine."""

    def read(self, folder: Path, dtype: Any) -> Any: ...
    def check_fit(self, decoder: Decoder, adapter: Any, /) -> None: ...
    def added(self, decoder: Decoder, ranks: Sequence[Mapping[str, int]]) -> int: ...
    def stacked(self, decoder: Decoder, adapters: Sequence[Any], /) -> Decoder: ...


FORMS: Mapping[str, Form] = {"lora": lora, "prefix": prefix}


@dataclass(frozen=True)
class Adapters:
    """Adapters on one base, that of `card`. `ranks`: of each card's adapter, by module. Those that are stacked
    together are of one form."""

    models: Loader
    card: Card
    ranks: dict[Path, Mapping[str, int]] = field(default_factory=dict)
    forms: dict[Path, Form] = field(default_factory=dict)

    @classmethod
    def on(cls, base: Decoder, card: Card, models: Loader) -> "Adapters":
        """Where the base of the card was read already. Raises ModelUnavailable where it does not fit alone."""
        models.held.check(f"the base of card {card.name!r}", trees.size(base))
        made = cls(models, card)
        made._keep(_Kept.on(base))
        return made

    def add(self, folder: Path, kind: str) -> Mapping[str, int]:
        """Take the adapter of a card of that kind and give its ranks; Unsupported where it can't be stacked on the
        base, CardError where it does not belong to it."""
        base, form = self.base(), FORMS[kind]
        adapter = form.read(folder, base.embed.table.dtype)
        form.check_fit(base, adapter)
        self.ranks[folder], self.forms[folder] = adapter.ranks, form
        return self.ranks[folder]

    def base(self) -> Decoder:
        base = self._kept().base
        assert base is not None
        return base

    def decoder(self, folders: Sequence[Path]) -> Decoder:
        kept = self._kept()
        if (found := kept.find(folders)) is not None:
            return found
        base, memory = self.base(), self.models.held
        form = self.forms[folders[0]]
        needed = form.added(base, [self.ranks[folder] for folder in folders])
        memory.check(f"the base of card {self.card.name!r} with an adapter", kept.shared + needed)
        kept.shed(needed, memory.limit)
        self._keep(kept)
        memory.make_room(needed)
        dtype = base.embed.table.dtype
        made = form.stacked(base, [form.read(folder, dtype) for folder in folders])
        kept.add(folders, made)
        self._keep(kept)
        return made

    def fitting(self, folders: Sequence[Path]) -> int:
        base = self.base()
        free = self.models.held.limit - self._kept().shared

        def needed(count: int) -> int:
            return self.forms[folders[0]].added(base, [self.ranks[folder] for folder in folders[:count]])

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
            kept = _Kept.on(packed(weights.read(self.card, self.models).decoder))
            self._keep(kept)
        return kept

    def _keep(self, kept: _Kept) -> None:
        self.models.held.put(self._key, kept, kept.size)


@dataclass(frozen=True)
class _Full:
    """A card with a model of its own; `size`: its bytes, `stacked`: those that it takes in a stack, `vocabulary`: its
    tokens."""

    card: Card
    size: int
    stacked: int
    vocabulary: int


@dataclass(frozen=True)
class FullModels:
    """Whole models of one architecture signature."""

    models: Loader
    key: Hashable
    cards: dict[Path, _Full] = field(default_factory=dict)

    def add(self, card: Card, read: Weights) -> None:
        """Take a card, whose model was just read and is kept as long as memory allows. Raises ModelUnavailable where
        it does not fit alone."""
        size = trees.size(read.decoder)
        self.models.held.check(f"card {card.name!r}", size)
        self.models.held.put(card.folder, read.decoder, size)
        stacked, vocabulary = whole.size(read.decoder), whole.vocabulary(read.decoder)
        self.cards[card.folder] = _Full(card, size, stacked, vocabulary)

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
        kept.add(folders, made)
        memory.put(self.key, kept, kept.size)
        return made

    def fitting(self, folders: Sequence[Path]) -> int:
        return max(1, min(len(folders), self.models.held.limit // self._each(folders)))

    def _each(self, folders: Sequence[Path]) -> int:
        """Bytes of a card in their stack, which are those of the largest."""
        return max(self.cards[folder].stacked for folder in folders)

    def _lone(self, folder: Path, kept: _Kept) -> Decoder:
        for folders, (joined, _) in kept.stacks.items():
            if folder in folders:
                number = folders.index(folder)
                return whole.part(joined, number, number + 1, len(folders))
        memory = self.models.held
        found: Decoder | None = memory.get(folder)
        if found is None:
            memory.make_room(self.cards[folder].size)
            found = self._read(folder)
            memory.put(folder, found, self.cards[folder].size)
        return found

    def _read(self, folder: Path) -> Decoder:
        """Read the card's model from its files."""
        return weights.read(self.cards[folder].card, self.models).decoder
