"""Cards that share a base, stacked into one model.

Stacks stay in memory as long as the budget allows; the cards' own files are read again when needed.
"""

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcard.cards.card import Card
from kcard.cards.fingerprint import Fingerprint, Pair
from kcard.cards.models import prompting, weights
from kcard.cards.models.batched import decoder, lora
from kcard.cards.models.batched import whole_models as whole
from kcard.cards.models.batched.decoder import Decoder, UnsupportedModel, packed
from kcard.cards.models.batched.generate import (
    Prompts,
    batched,
    decode,
    log_probabilities,
    until_eos,
)
from kcard.cards.models.loader import Loader, explained
from kcard.cards.models.prompting import Prompter
from kcard.cards.models.weights import Weights
from kcard.errors import CardError
from kcard.interfaces import CardGenerator
from kcard.token_sampling import Sampler
from kcard.types import Passage, Sampling

if TYPE_CHECKING:
    from torch import Tensor

# Of several cards, per base or architecture: few are needed, since pools mostly run as a whole.
MAX_CACHED_STACKS = 4


@dataclass(frozen=True)
class _StackCache:
    """The most recent stacks, with their own bytes, by folders; for adapters, also their base. Keeps MAX_CACHED_STACKS
    of several cards, and any number of single cards."""

    base: Decoder | None
    shared: int = 0
    decoders: dict[tuple[Path, ...], tuple[Decoder, int]] = field(default_factory=dict)

    @classmethod
    def from_base(cls, base: Decoder) -> "_StackCache":
        return cls(base, decoder.size(base))

    @property
    def size(self) -> int:
        return self.shared + sum(own for _, own in self.decoders.values())

    def find(self, folders: Sequence[Path]) -> Decoder | None:
        """Return the stack of these cards, marking it as most recently used; None if missing."""
        key = tuple(folders)
        if key not in self.decoders:
            return None
        self.decoders[key] = self.decoders.pop(key)
        return self.decoders[key][0]

    def add(self, folders: Sequence[Path], stack: Decoder) -> None:
        self.decoders[tuple(folders)] = stack, decoder.size(stack) - self.shared

    def make_room(self, needed: int, limit: int) -> None:
        """Drop stacks until another one fits: in number, and with `needed` more bytes within the limit."""
        several = [folders for folders in self.decoders if len(folders) > 1]
        for folders in several[: max(0, len(several) - MAX_CACHED_STACKS + 1)]:
            del self.decoders[folders]
        while self.decoders and self.size + needed > limit:
            del self.decoders[next(iter(self.decoders))]


@dataclass(frozen=True)
class Adapters:
    """LoRA adapters on one base, that of `card`; cards are identified by folder. `ranks`: of each card's adapter, by
    module."""

    models: Loader
    card: Card
    ranks: dict[Path, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def from_base(cls, base: Decoder, card: Card, models: Loader) -> "Adapters":
        """Wrap a base that was already read. Raises ModelUnavailable if it does not fit alone."""
        models.cache.check(f"the base of card {card.name!r}", decoder.size(base))
        adapters = cls(models, card)
        adapters._store(_StackCache.from_base(base))
        return adapters

    def add(self, folder: Path) -> None:
        """Add a card's adapter. Raises UnsupportedModel if it can't be stacked on the base, CardError if it does not
        belong to it."""
        base = self.base()
        adapter = lora.read(folder, base.embed.table.dtype)
        lora.check_fit(base, adapter)
        self.ranks[folder] = adapter.ranks

    def base(self) -> Decoder:
        """Load the adapters' base."""
        base = self._stacks().base
        assert base is not None
        return base

    def decoder(self, folders: Sequence[Path]) -> Decoder:
        """Load these cards, in order."""
        stacks = self._stacks()
        ready = stacks.find(folders)
        if ready is not None:
            return ready
        base, memory = self.base(), self.models.cache
        needed = lora.added(base, [self.ranks[folder] for folder in folders])
        memory.check(f"the base of card {self.card.name!r} with an adapter", stacks.shared + needed)
        stacks.make_room(needed, memory.limit)
        self._store(stacks)
        memory.make_room(needed)
        dtype = base.embed.table.dtype
        stack = lora.stacked(base, [lora.read(folder, dtype) for folder in folders])
        stacks.add(folders, stack)
        self._store(stacks)
        return stack

    def fitting(self, folders: Sequence[Path]) -> int:
        """Return how many of the first cards fit in memory at once: at least one."""
        base = self.base()
        free = self.models.cache.limit - self._stacks().shared

        def needed(count: int) -> int:
            return lora.added(base, [self.ranks[folder] for folder in folders[:count]])

        if needed(len(folders)) <= free:
            return len(folders)
        return max(1, bisect_right(range(len(folders) + 1), free, key=needed) - 1)

    @property
    def _key(self) -> Hashable:
        base = self.card.manifest.base
        return "base", base.name, base.revision

    def _stacks(self) -> _StackCache:
        stacks: _StackCache | None = self.models.cache.get(self._key)
        if stacks is None:
            stacks = _StackCache.from_base(packed(weights.read(self.card, self.models).decoder))
            self._store(stacks)
        return stacks

    def _store(self, stacks: _StackCache) -> None:
        self.models.cache.put(self._key, stacks, stacks.size)


class _FullModel(NamedTuple):
    """A card with its own model; `size`: its bytes, `stacked`: its bytes in a stack, `vocabulary`: its number of
    tokens."""

    card: Card
    size: int
    stacked: int
    vocabulary: int


@dataclass(frozen=True)
class FullModels:
    """Whole models of one architecture signature; see Adapters."""

    models: Loader
    key: Hashable
    cards: dict[Path, _FullModel] = field(default_factory=dict)

    def add(self, card: Card, read: Weights) -> None:
        """Add a card with its model as read, which is cached as memory allows. Raises ModelUnavailable if it does not
        fit alone."""
        size = decoder.size(read.decoder)
        self.models.cache.check(f"card {card.name!r}", size)
        self.models.cache.put(card.folder, read.decoder, size)
        stacked, vocabulary = whole.size(read.decoder), whole.vocabulary(read.decoder)
        self.cards[card.folder] = _FullModel(card, size, stacked, vocabulary)

    def base(self) -> None:
        return None

    def decoder(self, folders: Sequence[Path]) -> Decoder:
        memory = self.models.cache
        stacks: _StackCache = memory.get(self.key) or _StackCache(None)
        ready = stacks.find(folders)
        if ready is not None:
            return ready
        if len(folders) == 1:
            # A single card: take it from a stack that contains it, else load its own model.
            folder = folders[0]
            for stacked, (joined, _) in stacks.decoders.items():
                if folder in stacked:
                    number = stacked.index(folder)
                    return whole.part(joined, number, number + 1, len(stacked))
            model: Decoder | None = memory.get(folder)
            if model is None:
                memory.make_room(self.cards[folder].size)
                model = self._read(folder)
                memory.put(folder, model, self.cards[folder].size)
            return model
        needed = self._bytes_each(folders) * len(folders)
        stacks.make_room(needed, memory.limit)
        memory.put(self.key, stacks, stacks.size)
        memory.make_room(needed)
        vocabularies = [self.cards[folder].vocabulary for folder in folders]
        stack = whole.joined((memory.get(folder) or self._read(folder) for folder in folders), vocabularies)
        for folder in folders:
            memory.drop(folder)
        stacks.add(folders, stack)
        memory.put(self.key, stacks, stacks.size)
        return stack

    def fitting(self, folders: Sequence[Path]) -> int:
        return max(1, min(len(folders), self.models.cache.limit // self._bytes_each(folders)))

    def _bytes_each(self, folders: Sequence[Path]) -> int:
        """Return the bytes per card in their stack: those of the largest."""
        return max(self.cards[folder].stacked for folder in folders)

    def _read(self, folder: Path) -> Decoder:
        return weights.read(self.cards[folder].card, self.models).decoder


# Cards that the engine supports: stackable adapters, and whole models of known architectures.
#
# Cards of one base, or of one shape, form a group and run together: (cards x questions x documents) rows go through
# one decoder.

# Passages by card, then by question.
PassagesByCard = list[list[list[Passage]]]


@dataclass(frozen=True)
class StackedCard(CardGenerator):
    """One card and its group: `generate` runs it alone, the group's own `generate` runs it with others."""

    prompter: Prompter
    group: "Group"

    def generate(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """Run this card alone."""
        return self.group.generate([self.prompter], questions, documents, sampling)[0]

    def measure(self, pairs: Sequence[Pair]) -> Fingerprint:
        """Measure its fingerprint now; see kcard.cards.fingerprint."""
        return self.group.measure(self.prompter, pairs)


@dataclass(frozen=True)
class _CardModel:
    """The source of a card's weights, and what its prompts depend on: eos ids, maximum tokens, and the width of
    embeddings."""

    stack: "Adapters | FullModels"
    ends: int | list[int] | None
    context: int
    width: int

    @classmethod
    def of(cls, stack: "Adapters | FullModels", read: Weights) -> "_CardModel":
        return cls(stack, read.ends, read.decoder.longest, read.decoder.embed.table.shape[-1])


def load(card: Card, models: Loader) -> StackedCard:
    """Load the card into the engine.

    Raises UnsupportedModel if the engine can't run it, ModelUnavailable if its base is unavailable, CardError if its
    files can't be read.
    """
    model = _load_adapter(card, models) if card.manifest.is_adapter else _load_whole(card, models)
    prompter = prompting.load_prompter(card, models.tokenizer(card), model.ends, model.context, model.width)
    prompt = card.manifest.prompt
    key = (id(model.stack), prompter.eos, prompt.style, prompt.vectors, prompter.context)
    group: Group = models.groups.setdefault(key, Group(model.stack, models.rows))
    return StackedCard(prompter, group)


def _load_adapter(card: Card, models: Loader) -> _CardModel:
    unread = f"card {card.name!r}: its adapter can't be read"
    with explained(CardError, unread):
        lora.check(card.folder)
    key = ("base", card.manifest.base.name, card.manifest.base.revision)
    if key in models.groups:
        models.check_digest(card)
    else:
        try:
            read = weights.read(card, models)
            models.groups[key] = _CardModel.of(Adapters.from_base(packed(read.decoder), card, models), read)
        except UnsupportedModel as reason:
            models.groups[key] = reason  # which holds for all adapters on this base
    model: _CardModel | UnsupportedModel = models.groups[key]
    if isinstance(model, UnsupportedModel):
        raise UnsupportedModel(f"its base is {model}")
    on = model.stack
    assert isinstance(on, Adapters)
    with explained(CardError, unread):
        on.add(card.folder)
    return model


def _load_whole(card: Card, models: Loader) -> _CardModel:
    with explained(CardError, f"card {card.name!r}: its model can't be read"):
        needed = weights.size(card.folder, models.device)
    models.cache.check(f"card {card.name!r}", needed)
    models.cache.make_room(needed)
    try:
        read = weights.read(card, models)
    except UnsupportedModel as reason:
        raise UnsupportedModel(f"it is {reason}") from reason
    key = ("whole", whole.architecture_signature(read.decoder))
    stack: FullModels = models.groups.setdefault(key, FullModels(models, key))
    stack.add(card, read)
    return _CardModel.of(stack, read)


@dataclass(frozen=True)
class Group:
    """Cards of one shape, prompt style and eos. `rows`: maximum rows per batch."""

    stack: "Adapters | FullModels"
    rows: int

    def generate(
        self, members: Sequence[Prompter], questions: Sequence[str], documents: int, sampling: Sampling
    ) -> PassagesByCard:
        """Generate `documents` passages by member and question; at temperature 0, equal ones, generated once."""
        different = sampling.distinct(documents)
        if not questions or not different:
            return [[[] for _ in questions] for _ in members]
        embedded = prompting.embed_questions(questions) if members[0].projection is not None else None
        folders = [member.card.folder for member in members]
        # As many members at once as memory and rows allow.
        most = max(1, self.rows // different)
        by_card: PassagesByCard = []
        while len(by_card) < len(members):
            start = len(by_card)
            end = start + self.stack.fitting(folders[start:])
            decoder = self.stack.decoder(folders[start:end])
            for first in range(start, end, most):
                some = members[first : min(first + most, end)]
                part = whole.part(decoder, first - start, first - start + len(some), end - start)
                by_card += self._generate_batch(part, some, questions, different, sampling, embedded)
        if different < documents:
            for by_question in by_card:
                by_question[:] = [passages * documents for passages in by_question]
        return by_card

    def _generate_batch(
        self,
        decoder: Decoder,
        members: Sequence[Prompter],
        questions: Sequence[str],
        documents: int,
        sampling: Sampling,
        embedded: "Tensor | None",
    ) -> PassagesByCard:
        """Generate for one batch of members, grouping questions of similar length.

        embedded  the questions' sentence embeddings, if the prompt style needs them
        """
        import torch

        # The prompts of every member, and the questions by length.
        prompts = [
            member.prompts(questions, sampling, _start_embedding(decoder, number, member), embedded)
            for number, member in enumerate(members)
        ]

        def longest_prompt(question: int) -> int:
            return max(own.length(question) for own in prompts)

        order = sorted(range(len(questions)), key=longest_prompt)
        most = max(1, self.rows // (len(members) * documents))
        by_card: PassagesByCard = [[[] for _ in questions] for _ in members]
        for start in range(0, len(order), most):
            # Join the prompts of as many questions as the rows allow.
            numbers = order[start : start + most]
            ids: list[tuple[int, ...]] = []
            vectors: list[Tensor] = []
            for own in prompts:
                picked = own.pick(numbers)
                ids += picked.ids
                if picked.embeddings is not None:
                    vectors.append(picked.embeddings)
            together = Prompts(embeddings=torch.cat(vectors)) if vectors else Prompts(ids=tuple(ids))
            # Decode them, each document with its own seed.
            seeds: list[int] = []
            for member in members:
                for question in numbers:
                    seeds += member.seeds(questions[question], documents, sampling)
            sampler = Sampler(
                torch.tensor(seeds, dtype=torch.int64, device=decoder.embed.table.device),
                sampling.temperature,
                sampling.top_k,
            )
            batch = batched(decoder, together, documents)
            tokens = decode(decoder, batch, sampler, members[0].length(sampling), members[0].eos)
            # Turn the rows into passages: by member, question and document.
            rows = iter(tokens.tolist())
            for passages, member in zip(by_card, members, strict=True):
                for question in numbers:
                    for _ in range(documents):
                        document, has_ended = until_eos(next(rows), member.eos)
                        passages[question].append(member.passage(questions[question], document, has_ended))
        return by_card

    def measure(self, member: Prompter, pairs: Sequence[Pair]) -> Fingerprint:
        """Measure the member's fingerprint now; see kcard.cards.fingerprint."""
        decoder, base = self.stack.decoder([member.card.folder]), self.stack.base()
        prompts, texts = member.probes(pairs, _start_embedding(decoder, 0, member))
        card = log_probabilities(decoder, prompts, texts)
        bare = [] if base is None else log_probabilities(base, prompts, texts)
        return member.fingerprint(pairs, (prompts, texts), decoder.embed.table.dtype, card, bare)


def _start_embedding(decoder: Decoder, number: int, member: Prompter) -> "Tensor | None":
    """Embed the prompts' first token with card `number` of the decoder."""
    return None if member.start is None else decoder.embed.row(number, member.start)
