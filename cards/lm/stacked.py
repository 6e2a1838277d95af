"""Cards that the engine takes: adapters that can be stacked, and whole models of an architecture that it knows.

Cards of one base, or of one shape, form a group and write together: (cards x questions x documents) rows go through
one decoder.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcard.answer import Passage
from kcard.cards.format.fingerprint import Fingerprint, Pair
from kcard.cards.format.folder import Card
from kcard.cards.lm import prompt_styles, prompting, weights
from kcard.cards.lm.engine import lora, prefix, whole
from kcard.cards.lm.engine.batch import Prompts, batched
from kcard.cards.lm.engine.decoder import Decoder, Unsupported
from kcard.cards.lm.engine.loop import decode, log_probabilities, until_eos
from kcard.cards.lm.engine.packed import packed
from kcard.cards.lm.engine.sampler import Sampler
from kcard.cards.lm.loader import Loader, explained
from kcard.cards.lm.prompting import Prompting
from kcard.cards.lm.stacks import Adapters, FullModels, Stack
from kcard.cards.lm.weights import Weights
from kcard.errors import CardError
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Group", "StackedCard", "load"]

# By card, by question.
Written = list[list[list[Passage]]]


@dataclass(frozen=True)
class StackedCard:
    """One card, and the group that it writes in: alone here, with others by the group's own write."""

    asked: Prompting
    group: "Group"

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardGenerator."""
        return self.group.write([self.asked], questions, documents, sampling)[0]

    def measure(self, pairs: Sequence[Pair]) -> Fingerprint:
        """Its fingerprint as it is now; see kcard.cards.format.fingerprint."""
        return self.group.measure(self.asked, pairs)


@dataclass(frozen=True)
class _Model:
    """Where the weights of a card come from, and what its prompts must know: where texts end, most tokens, and the
    width of embeddings."""

    stack: Stack
    ends: int | list[int] | None
    context: int
    width: int

    @classmethod
    def of(cls, stack: Stack, read: Weights) -> "_Model":
        return cls(stack, read.ends, read.decoder.longest, read.decoder.embed.table.shape[-1])


def load(card: Card, models: Loader) -> StackedCard:
    """The card, in the engine.

    Raises Unsupported where the engine can't take it, ModelUnavailable where its base can't be had, CardError where
    its files can't be read.
    """
    model = _adapter(card, models) if card.manifest.is_adapter else _whole(card, models)
    asked = prompting.read(card, models.tokenizer(card), model.ends, model.context, model.width)
    prompt = card.manifest.prompt
    key = (id(model.stack), asked.eos, prompt.style, prompt.vectors, asked.context)
    group: Group = models.groups.setdefault(key, Group(model.stack, models.rows))
    return StackedCard(asked, group)


def _adapter(card: Card, models: Loader) -> _Model:
    kind = card.manifest.kind
    unread = f"card {card.name!r}: its {'prefix' if kind == 'prefix' else 'adapter'} can't be read"
    with explained(CardError, unread):
        (prefix if kind == "prefix" else lora).check(card.folder)
    key = ("base", card.manifest.base.name, card.manifest.base.revision)
    if key in models.groups:
        models.check_digest(card)
    else:
        try:
            read = weights.read(card, models)
            models.groups[key] = _Model.of(Adapters.on(packed(read.decoder), card, models), read)
        except Unsupported as reason:
            models.groups[key] = reason  # which holds for all adapters on this base
    model: _Model | Unsupported = models.groups[key]
    if isinstance(model, Unsupported):
        raise Unsupported(f"its base is {model}")
    on = model.stack
    assert isinstance(on, Adapters)
    with explained(CardError, unread):
        ranks = on.add(card.folder, kind)
    # Cards whose prefixes differ in length have another context and so write in groups of their own.
    return replace(model, context=model.context - ranks.get(prefix.PLACE, 0))


def _whole(card: Card, models: Loader) -> _Model:
    with explained(CardError, f"card {card.name!r}: its model can't be read"):
        needed = weights.size(card.folder, models.device)
    models.held.check(f"card {card.name!r}", needed)
    models.held.make_room(needed)
    try:
        read = weights.read(card, models)
    except Unsupported as reason:
        raise Unsupported(f"it is {reason}") from reason
    key = ("whole", whole.architecture_signature(read.decoder))
    stack: FullModels = models.groups.setdefault(key, FullModels(models, key))
    stack.add(card, read)
    return _Model.of(stack, read)


@dataclass(frozen=True)
class Group:
    """Cards of one shape, prompt style and end of text. `rows`: most rows in a batch."""

    stack: Stack
    rows: int

    def write(
        self, members: Sequence[Prompting], questions: Sequence[str], documents: int, sampling: Sampling
    ) -> Written:
        """`documents` passages of each member for each question. At temperature 0 they are all the same."""
        different = documents if sampling.temperature > 0 else min(documents, 1)
        if not questions or not different:
            return [[[] for _ in questions] for _ in members]
        embedded = prompt_styles.embedded(questions) if members[0].projection is not None else None
        run = _Run(questions, different, sampling, embedded, self.rows)
        folders = [member.card.folder for member in members]
        written: Written = []
        while (start := len(written)) < len(members):
            end = start + self.stack.fitting(folders[start:])
            decoder = self.stack.decoder(folders[start:end])
            written += run.all(decoder, members[start:end])
        if different == documents:
            return written
        return [[passages * documents for passages in by_question] for by_question in written]

    def measure(self, member: Prompting, pairs: Sequence[Pair]) -> Fingerprint:
        """The member's fingerprint as it is now; see kcard.cards.format.fingerprint."""
        decoder, base = self.stack.decoder([member.card.folder]), self.stack.base()
        prompts, texts = member.probes(pairs, _start(decoder, 0, member))
        card = log_probabilities(decoder, prompts, texts)
        bare = [] if base is None else log_probabilities(base, prompts, texts)
        return member.fingerprint(pairs, (prompts, texts), decoder.embed.table.dtype, card, bare)


@dataclass(frozen=True)
class _Run:
    """One call of write. `embedded`: the questions' sentence embeddings, where the prompt style wants them."""

    questions: Sequence[str]
    documents: int
    sampling: Sampling
    embedded: "Tensor | None"
    rows: int

    def all(self, decoder: Decoder, members: Sequence[Prompting]) -> Written:
        """What the members write, whose weights the decoder has; as many at once as the rows allow."""
        most = max(1, self.rows // self.documents)
        written: Written = []
        for first in range(0, len(members), most):
            some = members[first : first + most]
            written += self._some(whole.part(decoder, first, first + len(some), len(members)), some)
        return written

    def _some(self, decoder: Decoder, members: Sequence[Prompting]) -> Written:
        """The same for members of one batch: questions of like length go together."""
        prompts = [
            member.prompts(self.questions, self.sampling, _start(decoder, number, member), self.embedded)
            for number, member in enumerate(members)
        ]
        order = sorted(range(len(self.questions)), key=lambda q: max(p.length(q) for p in prompts))
        most = max(1, self.rows // (len(members) * self.documents))
        written: Written = [[[] for _ in self.questions] for _ in members]
        for start in range(0, len(order), most):
            asked = order[start : start + most]
            rows = iter(self._batch(decoder, members, asked, _joined([p.pick(asked) for p in prompts])))
            for passages, member in zip(written, members, strict=True):
                for question in asked:
                    ids = [next(rows) for _ in range(self.documents)]
                    passages[question] = [
                        member.passage(self.questions[question], *until_eos(row, member.eos)) for row in ids
                    ]
        return written

    def _batch(
        self, decoder: Decoder, members: Sequence[Prompting], asked: Sequence[int], prompts: Prompts
    ) -> list[list[int]]:
        import torch

        seeds = [
            seed
            for member in members
            for question in asked
            for seed in member.seeds(self.questions[question], self.documents, self.sampling)
        ]
        sampler = Sampler(
            torch.tensor(seeds, dtype=torch.int64, device=decoder.embed.table.device),
            self.sampling.temperature,
            self.sampling.top_k,
        )
        batch = batched(decoder, prompts, self.documents)
        found = decode(decoder, batch, sampler, members[0].length(self.sampling), members[0].eos)
        rows: list[list[int]] = found.tolist()
        return rows


def _start(decoder: Decoder, number: int, member: Prompting) -> "Tensor | None":
    """The embedding, by the decoder's card of that number, of the token that prompts start with."""
    return None if member.start is None else decoder.embed.row(number, member.start)


def _joined(prompts: Sequence[Prompts]) -> Prompts:
    if prompts[0].embeddings is None:
        return Prompts(ids=tuple(row for one in prompts for row in one.ids))
    import torch

    return Prompts(embeddings=torch.cat([one.embeddings for one in prompts if one.embeddings is not None]))
