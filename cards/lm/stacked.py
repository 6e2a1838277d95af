"""Cards that the engine takes: adapters that can be stacked, and whole models of an architecture that it knows.

Cards of one base, or of one shape, form a group and write together (kcard.cards.lm.group).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.answer import Passage
from kcard.cards.format.fingerprint import Fingerprint, Pair
from kcard.cards.format.folder import Card
from kcard.cards.lm import prompting, weights
from kcard.cards.lm.engine import adapters, whole
from kcard.cards.lm.engine.decoder import Unsupported
from kcard.cards.lm.engine.packed import packed
from kcard.cards.lm.group import Group
from kcard.cards.lm.loader import Loader, explained
from kcard.cards.lm.prompting import Prompting
from kcard.cards.lm.stacks import Adapters, FullModels, Stack
from kcard.cards.lm.weights import Weights
from kcard.errors import CardError
from kcard.sampling import Sampling

__all__ = ["StackedCard", "load"]


@dataclass(frozen=True)
class StackedCard:
    """One card, and the group that it writes in: alone here, with others by the group's own write."""

    asked: Prompting
    group: Group

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
    model = _adapter(card, models) if card.manifest.kind == "lora" else _whole(card, models)
    asked = prompting.read(card, models.tokenizer(card), model.ends, model.context, model.width)
    prompt = card.manifest.prompt
    key = (id(model.stack), asked.eos, prompt.style, prompt.vectors, asked.context)
    group: Group = models.groups.setdefault(key, Group(model.stack, models.rows))
    return StackedCard(asked, group)


def _adapter(card: Card, models: Loader) -> _Model:
    with explained(CardError, f"card {card.name!r}: its adapter can't be read"):
        adapters.check(card.folder)
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
    with explained(CardError, f"card {card.name!r}: its adapter can't be read"):
        on.add(card.folder)
    return model


def _whole(card: Card, models: Loader) -> _Model:
    models.held.make_room(sum(path.stat().st_size for path in card.folder.glob("*.safetensors")))
    try:
        read = weights.read(card, models)
    except Unsupported as reason:
        raise Unsupported(f"it is {reason}") from reason
    key = ("whole", whole.architecture_signature(read.decoder))
    stack: FullModels = models.groups.setdefault(key, FullModels(models, key))
    stack.add(card, read.decoder)
    return _Model.of(stack, read)
