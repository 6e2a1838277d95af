"""A pool of cards: loads them, generates passages with them, and evicts them when memory runs short."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kcard.cards.card import Card, CardHandle, CardSet
from kcard.cards.generators.retrieval import load_generator
from kcard.cards.models.loader import MAX_ROWS, Loader, explained
from kcard.errors import CardError, KcardError, MissingExtra, ModelUnavailable, UnknownCard, one_line
from kcard.events import Event, OnEvent, ignore, note
from kcard.interfaces import LLM, CardGenerator, Generator
from kcard.io import shown_size
from kcard.types import Choice, Passage, Question, Sampling

if TYPE_CHECKING:
    from kcard.cards.models.stack import StackedCard
    from kcard.cards.models.vllm_backend import ServedCard

# Whole models that are large, or too many to be stacked in memory, take turns, each for all of its questions: first the
# loaded ones, so that a batch starts with the cards that the last one left in memory and loads every other card once.

MAX_NAMED_CARDS = 3  # cards that a note names
# On a CPU, models of this size gain nothing from stacking: reading them takes the time.
LARGE_BYTES = 200_000_000


def why_in_turns(sizes: Sequence[int], limit: int, device: str) -> str:
    """Return why cards with whole models of these sizes, in bytes, take turns within the limit; "" if they run in one
    batch. A stack copies models and unties their tied weights, which takes up to twice their size extra."""
    together = 3 * sum(sizes)
    if together > limit:
        return f"in one batch they may take {shown_size(together)}, and weights may take {shown_size(limit)}"
    if device == "cpu" and max(sizes, default=0) >= LARGE_BYTES:
        return f"on a CPU, models of {shown_size(LARGE_BYTES)} or more gain nothing from running in one batch"
    return ""


class CardPool(Generator):
    """Cards that generate passages.

    rows    maximum number of documents generated at once; fewer if memory is short
    llm     resolves the LLM that a card names (kcard.cards.generators.external)
    memory  bytes for the weights of cards; None: half of the device's memory. The least recently used cards are
            evicted, and loaded again on their next use
    loader  holds the models, for pools that share them; its device, rows and memory then apply
    on_event  called with the number of cards that have generated (kind cards), where cards take turns, and once with
            a note why they do

    `models` is the loader in use.
    """

    def __init__(
        self,
        cards: Sequence[Card | CardHandle | Path] | CardSet,
        device: str = "cpu",
        rows: int = MAX_ROWS,
        llm: Callable[[str], LLM] | None = None,
        memory: int | None = None,
        loader: Loader | None = None,
        on_event: OnEvent = ignore,
    ) -> None:
        self._cards = cards if isinstance(cards, CardSet) else CardSet(cards)
        self.cards = [
            Choice(name, manifest.description, manifest.knowledge_date)
            for name, manifest in self._cards.manifests.items()
        ]
        self.models = loader or Loader(device=device, rows=rows, memory=memory)
        self.models.llm = llm
        self._on_event = on_event
        self._broken: dict[str, KcardError] = {}  # cards of this batch that can't generate, and why
        self._sizes: dict[Path, int] = {}
        self._warnings: set[tuple[str, str]] = set()
        self._has_told_turns = False

    @property
    def is_sequential(self) -> bool:
        """Whether cards, as far as their sizes are known, run one after another, so that larger batches load them less
        often."""
        return bool(self._why_in_turns(self._full_cards(self._cards)))

    def generate(
        self,
        questions: Sequence[str | Question],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """Generate as Generator does; a card with nothing to say gives empty documents.

        vLLM runs the cards that it hosts, large models take turns, and the other cards run together; those whose
        weights are loaded go first. A broken card is logged, and its documents are empty. Raises UnknownCard, or
        CardError, ModelUnavailable or MissingExtra if all cards are broken.
        """
        pending = []
        for question in questions:
            pending.append(Question(question) if isinstance(question, str) else question)
        # The rows of each card's questions.
        rows: dict[str, list[int]] = {}
        for row, names in enumerate(cards):
            for name in dict.fromkeys(names):
                rows.setdefault(name, []).append(row)
        for name in rows:
            if name not in self._cards:
                raise UnknownCard(
                    f"no card {name!r} in this pool; it holds {', '.join(self._cards) or 'none'}"
                )
        self._broken.clear()

        # Divide the cards into those on vLLM, those that take turns, and those that run together.
        hosted = self._hosted_cards(rows)
        in_turn = self._turn_takers([name for name in rows if name not in hosted])
        apart = {*hosted, *in_turn}
        together: dict[tuple[str, ...], list[int]] = {}  # rows by the cards that run in one batch
        for row, names in enumerate(cards):
            batched = tuple(name for name in dict.fromkeys(names) if name not in apart)
            together.setdefault(batched, []).append(row)
        passages: dict[str, dict[int, list[Passage]]] = {name: {} for name in rows}
        texts = {name: [pending[row].text for row in own] for name, own in rows.items()}

        def run_together() -> None:
            for names, own in together.items():
                batch = [pending[row] for row in own]
                for name, generated in self._generate_together(batch, names, documents, sampling):
                    passages[name].update(zip(own, generated, strict=True))

        # Run those on vLLM; then the others, large models first if one of them is loaded.
        on_servers = {name: texts[name] for name in hosted}
        for name, generated in self._generate_on_servers(on_servers, documents, sampling):
            passages[name].update(zip(rows[name], generated, strict=True))
        turns_first = any(map(self.is_loaded, in_turn))
        if not turns_first:
            run_together()
        # Cards with the fewest questions go first, so that those with the most stay loaded for the next batch.
        in_turn.sort(key=lambda name: (not self.is_loaded(name), len(rows[name])))
        for number, name in enumerate(in_turn):
            self._on_event(Event("cards", done=number, total=len(in_turn)))
            with self._tolerating(name):
                generated = self.generator(name).generate(texts[name], documents, sampling)
                passages[name].update(zip(rows[name], generated, strict=True))
        if in_turn:
            self._on_event(Event("cards", done=len(in_turn), total=len(in_turn)))
        if turns_first:
            run_together()

        # Broken cards give empty documents; each is reported once.
        if self._broken and len(self._broken) == len(rows):
            raise next(iter(self._broken.values()))
        for name, error in self._broken.items():
            self._warn_once(name, "card %s is left out: %s", one_line(error))
            passages[name] = dict.fromkeys(rows[name], [Passage(name, "")] * documents)
        by_question: list[list[Passage]] = []
        for row, names in enumerate(cards):
            by_question.append([])
            for name in names:
                by_question[row] += passages[name][row]
        return by_question

    def generator(self, name: str) -> CardGenerator:
        """Return the card's generator, loaded on first use."""
        card = self._cards[name]
        key = (name, card.folder)  # another version of the card has another folder
        generator: CardGenerator | None = self.models.cache.get(key)
        if generator is None:
            generator = load_generator(card, self.models)
            # Generators of the engine hold no weights themselves.
            self.models.cache.put(key, generator, generator.size)
            if generator.unsupported:
                message = "card %s runs alone, which is slower than in one batch with the other cards: %s"
                self._warn_once(name, message, generator.unsupported)
        return generator

    def is_loaded(self, name: str) -> bool:
        """Return whether the card's model is in memory, in the engine or not; False before the card is opened."""
        card = self._cards.entry(name)
        if not isinstance(card, Card):
            return False
        cache = self.models.cache
        generator: CardGenerator | None = cache.peek((name, card.folder))
        return card.folder in cache or (generator is not None and generator.parts[0].group is None)

    @contextmanager
    def _tolerating(self, name: str) -> Iterator[None]:
        """Skip a card that proves broken in the block, or whose base can't be loaded; the others still generate."""
        try:
            yield
        except (CardError, ModelUnavailable, MissingExtra) as error:
            self._broken[name] = error

    def _warn_once(self, name: str, message: str, reason: str) -> None:
        if (name, message) not in self._warnings:
            self._warnings.add((name, message))
            logging.getLogger(__name__).warning(message, name, reason)

    # Cards with whole models that take turns.

    def _turn_takers(self, names: Iterable[str]) -> list[str]:
        """Return the cards that must take turns: all that have whole models, or none."""
        whole = self._full_cards(names)
        for name in whole:
            if not self._known_size(name):
                with self._tolerating(name):
                    self._size_of(self._cards[name])
        whole = [name for name in whole if name not in self._broken]
        reason = self._why_in_turns(whole)
        if reason and len(whole) > 1 and not self._has_told_turns:
            self._has_told_turns = True
            listed = ", ".join(whole[:MAX_NAMED_CARDS])
            if len(whole) > MAX_NAMED_CARDS:
                listed += ", ..."
            self._on_event(note(f"{len(whole)} cards run one after another ({listed}): {reason}"))
        return whole if reason else []

    def _why_in_turns(self, whole: Sequence[str]) -> str:
        """Check the total file sizes first, which are known without opening them."""
        limit, device = self.models.cache.limit, self.models.device
        at_most = []
        for name in whole:
            card = self._cards.entry(name)
            files = card.size if isinstance(card, CardHandle) else 0
            at_most.append(files or self._known_size(name))
        if not why_in_turns(at_most, limit, device):
            return ""
        return why_in_turns([self._known_size(name) for name in whole], limit, device)

    def _full_cards(self, names: Iterable[str]) -> list[str]:
        """Return the cards that have whole models of their own."""
        return [name for name in names if self._cards.manifest(name).method == "full"]

    def _known_size(self, name: str) -> int:
        """Return the bytes of the card's own model, or of its files before it is opened; 0 if unknown."""
        card = self._cards.entry(name)
        if isinstance(card, Card):
            return self._size_of(card)
        if card.weights is None:
            return card.size
        return card.weights()

    def _size_of(self, card: Card) -> int:
        from kcard.cards.models import weights

        if card.folder not in self._sizes:
            with explained(CardError, f"card {card.name!r}: its model can't be read"):
                self._sizes[card.folder] = weights.size(card.folder, self.models.device)
        return self._sizes[card.folder]

    # Cards that vLLM hosts: the questions of all of them are sent together.

    def _hosted_cards(self, names: Iterable[str]) -> list[str]:
        """Return the cards that a server runs."""
        engines = self.models.engines
        if engines is None:
            return []
        hosted = []
        for name in names:
            with self._tolerating(name):
                # Check before the card is loaded, which would read its model even if no server has it.
                card = self._cards[name]
                if card.manifest.kind == "reference":  # its actual kind is known once it is fetched
                    is_hosted = self._served_card(name) is not None
                else:
                    is_hosted = bool(card.manifest.method) and engines.card(card, self.models) is not None
                if is_hosted:
                    hosted.append(name)
        return hosted

    def _generate_on_servers(
        self, questions: Mapping[str, Sequence[str]], documents: int, sampling: Sampling
    ) -> Iterator[tuple[str, list[list[Passage]]]]:
        """Yield each card with the passages for its questions; those of its index, if it has one, come last."""
        names, members = [], []
        for name in questions:
            with self._tolerating(name):
                card = self._served_card(name)
                if card is not None:
                    names.append(name)
                    members.append((card, questions[name]))
        if not members:
            return
        by_card = members[0][0].host.generate_each(members, documents, sampling)
        for name, by_question in zip(names, by_card, strict=True):
            for part in self.generator(name).parts[1:]:
                retrieved = part.generate(questions[name], documents, sampling)
                for passages, more in zip(by_question, retrieved, strict=True):
                    passages += more
            yield name, by_question

    def _served_card(self, name: str) -> "ServedCard | None":
        from kcard.cards.models.vllm_backend import ServedCard

        model = self.generator(name).parts[0]
        return model if isinstance(model, ServedCard) else None

    # The other cards run together.

    def _generate_together(
        self, questions: Sequence[Question], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> Iterator[tuple[str, list[list[Passage]]]]:
        """Yield each card's passages by question. Cards of one group run in one batch, last."""
        texts = [question.text for question in questions]
        # Run the parts of cards that can't be batched, and collect the others by group. A part is (card, number).
        results: dict[tuple[str, int], list[list[Passage]]] = {}
        groups: dict[int, dict[tuple[str, int], StackedCard]] = {}
        for name in cards:
            with self._tolerating(name):
                for number, part in enumerate(self.generator(name).parts):
                    if part.group is not None:
                        groups.setdefault(id(part.group), {})[name, number] = cast("StackedCard", part)
                    else:
                        results[name, number] = part.generate_for(questions, documents, sampling)
        # Run each group in one batch; if one of its cards is broken, run each alone.
        for members in groups.values():
            stacked = [*members.values()]
            group = stacked[0].group
            try:
                by_part = group.generate([card.prompter for card in stacked], texts, documents, sampling)
                results.update(zip(members, by_part, strict=True))
            except CardError:
                for place, card in members.items():
                    with self._tolerating(place[0]):
                        (results[place],) = group.generate([card.prompter], texts, documents, sampling)
        # Join the passages of a card's model and index.
        for name in cards:
            if name in self._broken:
                continue
            passages: list[list[Passage]] = [[] for _ in questions]
            number = 0
            while (name, number) in results:
                for own, more in zip(passages, results[name, number], strict=True):
                    own += more
                number += 1
            yield name, passages
