"""A pool of cards: loads them, generates passages with them, and evicts them when memory runs short."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kcard.batching import alike
from kcard.cards.card import Card, CardHandle, CardSet
from kcard.cards.generators.retrieval import CardGenerator, ModelWithIndex, load_generator
from kcard.cards.models import weights
from kcard.cards.models.loader import ROWS, Loader, explained
from kcard.cards.models.stack import StackedCard
from kcard.errors import CardError, UnknownCard, one_line
from kcard.interfaces import LLM
from kcard.types import Choice, Passage, Sampling

if TYPE_CHECKING:
    from kcard.cards.models.vllm_backend import ServedCard

__all__ = ["CardPool", "LargeModelScheduler", "VllmCards", "must_take_turns"]


# Schedules large models one at a time, loaded ones first; each generates for all of its questions.
#
# Models that are large, or too many to be stacked in memory, take turns: first the loaded ones, then the others.
# Each batch thus starts with the cards that the previous batch left in memory and loads every other card once.
# Cards with the fewest questions go first, so that those with the most stay loaded.

LARGE = 200_000_000  # bytes; models of this size gain nothing from stacking, since they are memory-bound


def must_take_turns(sizes: Mapping[str, int], limit: int) -> bool:
    """Return whether cards with whole models of these sizes, in bytes, must take turns within the limit. A stack copies
    models and unties their tied weights, which takes up to twice their size extra."""
    return max(sizes.values(), default=0) >= LARGE or 3 * sum(sizes.values()) > limit


@dataclass
class LargeModelScheduler:
    """The scheduler of large models. `progress`: see CardPool. `broken`: unreadable cards and their errors."""

    cards: CardSet
    models: Loader
    progress: Callable[[int, int], object] | None = None
    broken: dict[str, CardError] = field(default_factory=dict)
    _sizes: dict[Path, int] = field(default_factory=dict)
    _alone: set[str] = field(default_factory=set)

    @contextmanager
    def tolerating(self, name: str) -> Iterator[None]:
        """Skip a card that proves broken in the block; the others still generate."""
        try:
            yield
        except CardError as error:
            self.broken[name] = error

    def writer(self, name: str) -> CardGenerator:
        """Return the card's generator, loaded on first use."""
        card = self.cards[name]
        key = (name, card.folder)  # another version of the card has another folder
        writer: CardGenerator | None = self.models.cache.get(key)
        if writer is None:
            writer = load_generator(card, self.models)
            # Generators of the engine hold no weights themselves.
            self.models.cache.put(key, writer, int(getattr(writer, "size", 0)))
            # Log once per card why it can't be batched with others.
            reason = getattr(_model(writer), "unsupported", "")
            if reason and name not in self._alone:
                self._alone.add(name)
                logging.getLogger(__name__).warning(
                    "card %s writes by itself, not in one batch with other cards, which would be faster: %s",
                    name,
                    reason,
                )
        return writer

    def turn_takers(self, names: "Collection[str]") -> list[str]:
        """Return the cards that must take turns: all that have whole models, or none."""
        whole = self._full_cards(names)
        for name in whole:
            if not self._known_size(name):
                with self.tolerating(name):
                    self._size_of(self.cards[name])
        whole = [name for name in whole if name not in self.broken]
        return whole if self._must_take_turns(whole) else []

    def will_take_turns(self) -> bool:
        """Return whether cards will take turns, judging by the sizes known before they are opened."""
        return self._must_take_turns(self._full_cards(self.cards))

    def _must_take_turns(self, whole: Sequence[str]) -> bool:
        """Check the total file sizes first, which are known without opening them."""
        limit, most = self.models.cache.limit, dict[str, int]()
        for name in whole:
            card = self.cards.entry(name)
            most[name] = (0 if isinstance(card, Card) else card.size) or self._known_size(name)
        return must_take_turns(most, limit) and must_take_turns(
            {name: self._known_size(name) for name in whole}, limit
        )

    def order(self, counts: Mapping[str, int]) -> list[str]:
        """Sort cards by turn: loaded ones first, and within each half by ascending number of questions (`counts`)."""
        return sorted(counts, key=lambda name: (not self.is_loaded(name), counts[name]))

    def is_loaded(self, name: str) -> bool:
        """Return whether the card's model is in memory, in the engine or not; False before the card is opened."""
        if not isinstance(card := self.cards.entry(name), Card):
            return False
        cache = self.models.cache
        model = _model(cache.peek((name, card.folder)))
        return card.folder in cache or (model is not None and not isinstance(model, StackedCard))

    def generate(
        self, questions: Mapping[str, Sequence[str]], documents: int, sampling: Sampling
    ) -> Iterator[tuple[str, list[list[Passage]]]]:
        """Yield each card, once it is done, with `documents` passages for each of its questions."""
        order = self.order({name: len(own) for name, own in questions.items()})
        for number, name in enumerate(order):
            self._report(number, len(order))
            with self.tolerating(name):
                written = self.writer(name).generate(questions[name], documents, sampling)
            if name not in self.broken:
                yield name, written
        self._report(len(order), len(order))

    def _report(self, done: int, total: int) -> None:
        if self.progress is not None and total:
            self.progress(done, total)

    def _full_cards(self, names: "Iterable[str]") -> list[str]:
        """Return the cards that have whole models of their own."""
        return [name for name in names if self.cards.manifest(name).kind == "full"]

    def _known_size(self, name: str) -> int:
        """Return the bytes of the card's own model, or of its files before it is opened; 0 if unknown."""
        card = self.cards.entry(name)
        if isinstance(card, Card):
            return self._size_of(card)
        return card.size if card.weights is None else card.weights()

    def _size_of(self, card: Card) -> int:
        if card.folder not in self._sizes:
            with explained(CardError, f"card {card.name!r}: its model can't be read"):
                self._sizes[card.folder] = weights.size(card.folder, self.models.device)
        return self._sizes[card.folder]


def _model(writer: CardGenerator | None) -> CardGenerator | None:
    return writer.model if isinstance(writer, ModelWithIndex) else writer


# Batched generation for cards hosted on vLLM: the questions of all of them are sent together.


@dataclass(frozen=True)
class VllmCards:
    """The cards of a pool that vLLM hosts."""

    cards: LargeModelScheduler
    models: Loader

    def names(self, names: Collection[str]) -> list[str]:
        """Return the cards that a server runs."""
        engines = self.models.engines
        if engines is None:
            return []
        from kcard.cards.models.vllm_engines import MODELS

        served = []
        for name in names:
            with self.cards.tolerating(name):
                # Checked before the card is loaded, which would read its model even if no server has it.
                card = self.cards.cards[name]
                if card.manifest.kind == "reference":  # its actual kind is known once it is fetched
                    is_served = _served_card(self.cards.writer(name)) is not None
                else:
                    is_served = card.manifest.kind in MODELS and engines.card(card, self.models) is not None
                if is_served:
                    served.append(name)
        return served

    def generate(
        self, questions: Mapping[str, Sequence[str]], documents: int, sampling: Sampling
    ) -> Iterator[tuple[str, list[list[Passage]]]]:
        """Yield each card with the passages for its questions; those of its index, if it has one, come last."""
        served_cards: dict[str, ServedCard | None] = {}
        for name in questions:
            with self.cards.tolerating(name):
                served_cards[name] = _served_card(self.cards.writer(name))
        members = [(card, questions[name]) for name, card in served_cards.items() if card is not None]
        if not members:
            return
        written = members[0][0].group.generate_each(members, documents, sampling)
        for name, rows in zip(served_cards, written, strict=True):
            writer = self.cards.writer(name)
            if isinstance(writer, ModelWithIndex):
                looked_up = writer.index.generate(questions[name], documents, sampling)
                rows = [[*own, *passages] for own, passages in zip(rows, looked_up, strict=True)]
            yield name, rows


def _served_card(writer: "CardGenerator") -> "ServedCard | None":
    from kcard.cards.models.vllm_backend import ServedCard

    model = _model(writer)
    return model if isinstance(model, ServedCard) else None


class CardPool:
    """Cards that generate passages.

    rows    maximum number of documents generated at once; fewer if memory is short
    llm     resolves the LLM that a card names (kcard.cards.generators.external)
    memory  bytes for the weights of cards; None: half of the device's memory. The least recently used cards are
            evicted, and loaded again on their next use
    loader  holds the models, for pools that share them; its device, rows and memory then apply
    progress  called with the numbers of finished and of all cards, where cards take turns
    """

    def __init__(
        self,
        cards: Sequence[Card | CardHandle | Path] | CardSet,
        device: str = "cpu",
        rows: int = ROWS,
        llm: Callable[[str], LLM] | None = None,
        memory: int | None = None,
        loader: Loader | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self._cards = cards if isinstance(cards, CardSet) else CardSet(cards)
        self._choices = [Choice(m.name, m.description, m.knowledge_date) for m in self._cards.manifests]
        self._models = loader or Loader(device=device, rows=rows, memory=memory)
        self._models.llm = llm
        self._turns = LargeModelScheduler(self._cards, self._models, progress)
        self._served = VllmCards(self._turns, self._models)
        self._left_out: set[str] = set()  # broken cards that were named

    @property
    def cards(self) -> Sequence[Choice]:
        """Name, description and knowledge date of each card, in the order given."""
        return self._choices

    @property
    def is_sequential(self) -> bool:
        """Whether cards, as far as their sizes are known, run one after another, so that larger batches load them less
        often."""
        return self._turns.will_take_turns()

    def generate(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        """Generate like Generator; a card with nothing to say gives empty documents. Raises UnknownCard."""
        self._check_names(cards)
        return self.generate_each(questions, [cards] * len(questions), documents, sampling)

    def generate_each(
        self,
        questions: Sequence[str],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """Generate as Scheduling does. vLLM runs the cards that it hosts, large models take turns, and the other cards
        run together; those whose weights are loaded go first. A broken card is logged, and its documents are empty.
        Raises UnknownCard, or CardError if all cards are broken."""
        rows: dict[str, list[int]] = {}
        for row, names in enumerate(cards):
            for name in dict.fromkeys(names):
                rows.setdefault(name, []).append(row)
        self._check_names(rows)
        self._turns.broken.clear()
        served = self._served.names(rows)
        taking = self._turns.turn_takers([name for name in rows if name not in served])
        own = {name: [questions[row] for row in rows[name]] for name in (*served, *taking)}
        together = [tuple(name for name in dict.fromkeys(names) if name not in own) for names in cards]
        written: dict[str, dict[int, list[Passage]]] = {name: {} for name in rows}

        def all_together() -> None:
            for names, alike_rows in alike(together).items():
                batch_questions = [questions[row] for row in alike_rows]
                for name, batch_passages in self._write_together(batch_questions, names, documents, sampling):
                    written[name].update(zip(alike_rows, batch_passages, strict=True))

        for name, passages in self._served.generate(
            {name: own.pop(name) for name in served}, documents, sampling
        ):
            written[name].update(zip(rows[name], passages, strict=True))
        waiting = any(map(self._turns.is_loaded, taking))
        if not waiting:
            all_together()
        for name, passages in self._turns.generate(own, documents, sampling):
            written[name].update(zip(rows[name], passages, strict=True))
        if waiting:
            all_together()
        broken = self._turns.broken
        if broken and len(broken) == len(rows):
            raise next(iter(broken.values()))
        for name, error in broken.items():
            if name not in self._left_out:
                self._left_out.add(name)
                logging.getLogger(__name__).warning("card %s is left out: %s", name, one_line(error))
            written[name] = dict.fromkeys(rows[name], [Passage(name, "")] * documents)
        return [
            [passage for name in names for passage in written[name][row]] for row, names in enumerate(cards)
        ]

    def _check_names(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._cards:
                names_in_pool = ", ".join(self._cards) or "none"
                raise UnknownCard(f"no card {name!r} in this pool; it holds {names_in_pool}")

    def _write_together(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> Iterator[tuple[str, list[list[Passage]]]]:
        """Yield each card's passages by question. Cards of one group run in one batch, last."""
        written: list[tuple[str, list[list[Passage]]]] = []
        groups: dict[int, dict[int, StackedCard]] = {}
        for name in cards:
            with self._turns.tolerating(name):
                writer = self._turns.writer(name)
                for part in (writer.model, writer.index) if isinstance(writer, ModelWithIndex) else (writer,):
                    if (group := getattr(part, "group", None)) is not None:
                        groups.setdefault(id(group), {})[len(written)] = cast("StackedCard", part)
                        written.append((name, []))
                    else:
                        written.append((name, part.generate(questions, documents, sampling)))
        for members in groups.values():
            prompters = [card.prompter for card in members.values()]
            (group, *_) = [card.group for card in members.values()]
            try:
                rows_of = group.generate(prompters, questions, documents, sampling)
            except CardError:  # one of them is broken: run each alone
                rows_of = [[] for _ in members]
                for at, (place, card) in enumerate(members.items()):
                    with self._turns.tolerating(written[place][0]):
                        rows_of[at] = group.generate([card.prompter], questions, documents, sampling)[0]
            for place, rows in zip(members, rows_of, strict=True):
                written[place] = (written[place][0], rows)
        for name, parts in groupby(written, key=itemgetter(0)):
            if name in self._turns.broken:
                continue
            yield name, [list(chain(*own)) for own in zip(*(rows for _, rows in parts), strict=True)]
