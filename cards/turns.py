"""Cards with whole models that write one after the other, each for all of its questions, as loaded cards allow.

Models that are large, or too many to be stacked in memory, take turns: those that are loaded first, then the others. A
batch therefore begins with the cards that the last one left loaded, and loads each of the others once. Of these the
least asked come first, so that the most asked stay.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.answer import Passage
from kcard.cards.format.folder import Card, CardSet
from kcard.cards.kinds.generator import Both, CardGenerator, load
from kcard.cards.lm import weights
from kcard.cards.lm.loader import Loader, explained
from kcard.cards.lm.stacked import StackedCard
from kcard.errors import CardError
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["Turns", "in_turn"]

LARGE = 200_000_000  # bytes of a model from which on a stack saves nothing: its products are as slow as its memory


def in_turn(sizes: Mapping[str, int], limit: int) -> bool:
    """Whether cards whose whole models have these sizes, in bytes, take turns within the limit. A stack is made of
    copies, and has weights that are tied twice: it takes up to twice as much again."""
    return max(sizes.values(), default=0) >= LARGE or 3 * sum(sizes.values()) > limit


@dataclass
class Turns:
    """The cards of a pool as they are loaded. `progress`: see Pool. `broken`: cards that could not be read, and why."""

    cards: CardSet
    models: Loader
    progress: Callable[[int, int], object] | None = None
    broken: dict[str, CardError] = field(default_factory=dict)
    _sizes: dict[Path, int] = field(default_factory=dict)
    _alone: set[str] = field(default_factory=set)

    @contextmanager
    def tolerating(self, name: str) -> Iterator[None]:
        """Leave out a card that turns out to be broken in the block: the others still write."""
        try:
            yield
        except CardError as error:
            self.broken[name] = error

    def writer(self, name: str) -> CardGenerator:
        """The card, loaded when it is first needed."""
        card = self.cards[name]
        key = (name, card.folder)  # another version of the card has another folder
        writer: CardGenerator | None = self.models.held.get(key)
        if writer is None:
            writer = load(card, self.models)
            # Those of the engine hold nothing themselves.
            self.models.held.put(key, writer, int(getattr(writer, "size", 0)))
            self._warn(name, getattr(_model(writer), "unsupported", ""))
        return writer

    def taking(self, names: "Collection[str]") -> list[str]:
        """Those of the cards that take turns: all that have models of their own, or none."""
        whole = self._whole(names)
        for name in whole:
            if not self._known_size(name):
                with self.tolerating(name):
                    self._measured(self.cards[name])
        whole = [name for name in whole if name not in self.broken]
        return whole if self._in_turn(whole) else []

    def expected(self) -> bool:
        """Whether cards of the pool will take turns, as far as it is known before they are opened."""
        return self._in_turn(self._whole(self.cards))

    def _in_turn(self, whole: Sequence[str]) -> bool:
        """By all of their files first, which are known without a look at them."""
        limit = self.models.held.limit
        return in_turn({name: self._at_most(name) for name in whole}, limit) and in_turn(
            {name: self._known_size(name) for name in whole}, limit
        )

    def order(self, asked: Mapping[str, int]) -> list[str]:
        """Sort cards as they take turns: the loaded ones first, and of each half the least asked first. `asked`: how
        many questions each has."""
        return sorted(asked, key=lambda name: (not self.is_loaded(name), asked[name]))

    def is_loaded(self, name: str) -> bool:
        """Return whether the card's model is in memory, in the engine or not; False before the card was opened."""
        if not isinstance(card := self.cards.known(name), Card):
            return False
        held = self.models.held
        model = _model(held.peek((name, card.folder)))
        return card.folder in held or (model is not None and not isinstance(model, StackedCard))

    def write(
        self, questions: Mapping[str, Sequence[str]], documents: int, sampling: Sampling
    ) -> Iterator[tuple[str, list[list[Passage]]]]:
        """Yield each card, as soon as it has written, with `documents` passages for each of its questions."""
        order = self.order({name: len(own) for name, own in questions.items()})
        for number, name in enumerate(order):
            self._report(number, len(order))
            with self.tolerating(name):
                written = self.writer(name).write(questions[name], documents, sampling)
            if name not in self.broken:
                yield name, written
        self._report(len(order), len(order))

    def _report(self, done: int, total: int) -> None:
        if self.progress is not None and total:
            self.progress(done, total)

    def _whole(self, names: "Iterable[str]") -> list[str]:
        """Those of the cards that have models of their own."""
        return [name for name in names if self.cards.manifest(name).kind == "full"]

    def _at_most(self, name: str) -> int:
        """Bytes of the card's own model; before it is opened, of all of its files."""
        card = self.cards.known(name)
        return self._measured(card) if isinstance(card, Card) else card.size or self._known_size(name)

    def _known_size(self, name: str) -> int:
        """Bytes of the card's own model, before it is opened of its files; 0 where they are not known."""
        card = self.cards.known(name)
        if isinstance(card, Card):
            return self._measured(card)
        return card.size if card.weights is None else card.weights()

    def _measured(self, card: Card) -> int:
        if card.folder not in self._sizes:
            with explained(CardError, f"card {card.name!r}: its model can't be read"):
                self._sizes[card.folder] = weights.size(card.folder, self.models.device)
        return self._sizes[card.folder]

    def _warn(self, name: str, reason: str) -> None:
        """Say once of a card with a model why it does not write with others."""
        if reason and name not in self._alone:
            self._alone.add(name)
            logging.getLogger(__name__).warning(
                "card %s writes by itself, not in one batch with other cards, which would be faster: %s",
                name,
                reason,
            )


def _model(writer: CardGenerator | None) -> CardGenerator | None:
    return writer.model if isinstance(writer, Both) else writer
