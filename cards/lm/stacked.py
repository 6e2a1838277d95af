"""Cards that the engine takes: adapters that can be stacked, and whole models of an architecture that it knows.

Cards of one base, or of one shape, form a group and write together (kcard.cards.lm.group).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kcard.answer import Passage
from kcard.cards.embedded import base_folder
from kcard.cards.format.canaries import Canaries, Pair
from kcard.cards.format.folder import Card
from kcard.cards.lm import plain, prompting
from kcard.cards.lm.group import Group
from kcard.cards.lm.loader import SMALL, Loader, explained
from kcard.cards.lm.prompting import Prompting
from kcard.cards.lm.stacks import Adapters, FullModels, Stack, Whole
from kcard.errors import CardError, ModelUnavailable
from kcard.sampling import Sampling

__all__ = ["StackedCard", "Unstackable", "load"]


class Unstackable(Exception):
    """The engine can't take a card, for the reason that this says; transformers may."""


@dataclass(frozen=True)
class StackedCard:
    """One card, and the group that it writes in: alone here, with others by the group's own write."""

    asked: Prompting
    group: Group

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """See CardGenerator."""
        return self.group.write([self.asked], questions, documents, sampling)[0]

    def measure(self, pairs: Sequence[Pair]) -> Canaries:
        """See kcard.cards.format.canaries."""
        return self.group.measure(self.asked, pairs)


@dataclass(frozen=True)
class _Ground:
    """What cards stand on: their weights, and what the model's config says. `room`: tokens; `width`: of embeddings."""

    stack: Stack
    ends: int | list[int] | None
    room: int
    width: int


def load(card: Card, models: Loader) -> StackedCard:
    """The card, in the engine.

    Raises Unstackable where the engine can't take it, ModelUnavailable where its base can't be had, CardError where
    its files can't be read.
    """
    ground = _adapter(card, models) if card.manifest.kind == "lora" else _whole(card, models)
    asked = prompting.read(card, models.tokenizer(card), ground.ends, ground.room, ground.width)
    prompt = card.manifest.prompt
    key = (id(ground.stack), asked.eos, prompt.style, prompt.vectors, asked.room)
    group: Group = models.groups.setdefault(key, Group(ground.stack, models.rows))
    return StackedCard(asked, group)


def _adapter(card: Card, models: Loader) -> _Ground:
    from kcard.cards.lm.engine import adapters, stack

    with explained(CardError, f"card {card.name!r}: its adapter can't be read"):
        why = adapters.obstacle(card.folder)
    if why is not None:
        raise Unstackable(why)
    base = card.manifest.base
    key = ("base", base.name, base.revision)
    if key in models.groups:
        models.check_digest(card)
    else:
        models.groups[key] = _base(card, models, key)
    ground: _Ground | Unstackable = models.groups[key]
    if isinstance(ground, Unstackable):
        raise ground
    on = ground.stack
    assert isinstance(on, Adapters)
    decoder = on.base()
    with explained(CardError, f"card {card.name!r}: its adapter can't be read"):
        adapter = adapters.read(card.folder, decoder.embed.table.dtype)
    if (why := stack.misfit(decoder, adapter)) is not None:
        raise Unstackable(why)
    on.ranks[card.folder] = adapter.ranks
    return ground


def _base(card: Card, models: Loader, key: Any) -> _Ground | Unstackable:
    """What adapters of the card's base stand on, or why none can: it is the same for all of them."""
    from kcard.cards.lm.engine import families
    from kcard.cards.lm.engine.packed import packed

    model = _model(card, models)
    decoder = families.read(model)
    if decoder is None:
        models.spare(card, model)
        return Unstackable(f"its base is a {type(model).__name__}")

    def again() -> Any:
        found = families.read(_model(card, models))
        return None if found is None else packed(found)

    stack = Adapters(models.held, key, again, {})
    stack.begin(packed(decoder))
    return _ground(model, stack)


def _whole(card: Card, models: Loader) -> _Ground:
    from kcard.cards.lm.engine import families, trees, whole

    models.held.make_room(sum(path.stat().st_size for path in card.folder.glob("*.safetensors")))
    model = _model(card, models)
    decoder = families.read(model)
    if decoder is None:
        models.spare(card, model)
        raise Unstackable(f"it is a {type(model).__name__}")
    models.held.put(card.folder, decoder, trees.size(decoder))
    key = ("whole", whole.kinship(decoder))

    def load(card: Card) -> Any:
        return families.read(_model(card, models))

    stack: FullModels = models.groups.setdefault(key, FullModels(models.held, key, load, {}))
    stack.cards[card.folder] = Whole(card, whole.size(decoder), whole.vocabulary(decoder))
    return _ground(model, stack)


def _model(card: Card, models: Loader) -> Any:
    """A card's whole model, or the base of its adapter: without transformers where it is as an embedded one."""
    base, adapts = card.manifest.base.name, card.manifest.kind == "lora"
    if adapts and not base:
        return models.model(card)  # which says so
    folder = Path(base_folder(base)) if adapts else card.folder
    weights = folder / "model.safetensors"
    if weights.is_file() and weights.stat().st_size < 4 * SMALL:  # a larger one may be in bf16
        kind = ModelUnavailable if adapts else CardError
        with explained(kind, f"card {card.name!r}: {folder} can't be loaded"):
            found = plain.read(folder, models.device)
        if found is not None:
            if adapts:
                models.check_digest(card)
            return found
    return models.model(card)


def _ground(model: Any, stack: Stack) -> _Ground:
    ends, room = model.generation_config.eos_token_id, model.config.max_position_embeddings
    return _Ground(stack, ends, room, model.get_input_embeddings().weight.shape[1])
