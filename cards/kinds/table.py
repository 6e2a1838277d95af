"""The kinds of cards: which files each must have, and what loads it. A new kind is one row of KINDS.

A kind's loader takes the card and the loader of base models and returns a CardGenerator, which turns questions
into passages. Loaders are named, not imported, so that reading a manifest loads nothing heavy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from kcard.answer import Passage
from kcard.cards.format.passages import INDEX, PASSAGES
from kcard.errors import CardError
from kcard.manifest import Manifest
from kcard.sampling import Sampling

if TYPE_CHECKING:
    from kcard.cards.format.folder import Card
    from kcard.cards.lm.loader import Loader

__all__ = ["INDEXED", "KINDS", "CardGenerator", "Kind", "kind_of", "load"]


class CardGenerator(Protocol):
    """One loaded card."""

    def write(self, questions: Sequence[str], documents: int, sampling: Sampling) -> list[list[Passage]]:
        """`documents` passages for each question, each by (seed, question, card, document number) alone."""
        ...


@dataclass(frozen=True)
class Kind:
    """`files`: of each tuple, at least one must be in the folder. `loader`: module:function."""

    files: tuple[tuple[str, ...], ...]
    loader: str


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
WHOLE = (("config.json",), ("model.safetensors", "model.safetensors.index.json"), TOKENIZER)
GRAPH, SEARCH = "graph.tsv", "search.json"
ADAPTER = (("adapter_config.json",), ("adapter_model.safetensors",), TOKENIZER)
INDEXED = ((PASSAGES,), (f"{INDEX}/params.index.json",))

KINDS: Mapping[str, Kind] = {
    "full": Kind(WHOLE, "kcard.cards.lm.causal:load"),
    "lora": Kind(ADAPTER, "kcard.cards.lm.causal:load"),
    "retrieval": Kind(INDEXED, "kcard.cards.kinds.retrieval:load"),
    "graph": Kind((*INDEXED, (GRAPH,)), "kcard.cards.kinds.graph:load"),
    "search": Kind(((SEARCH,),), "kcard.cards.kinds.search:load"),
    "reference": Kind((("reference.json",),), "kcard.cards.kinds.reference:load"),
    "llm": Kind((), "kcard.cards.kinds.llm:load"),
}


def kind_of(manifest: Manifest) -> Kind:
    """The card's kind; CardError names the kinds that this version knows."""
    if manifest.kind not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise CardError(
            f"card {manifest.name!r} is of the unknown kind {manifest.kind!r}; this kcard knows {known}"
        )
    return KINDS[manifest.kind]


def load(card: "Card", models: "Loader") -> CardGenerator:
    """Load the card by its kind's loader; a card of both gets its index as a second writer."""
    module, function = kind_of(card.manifest).loader.split(":")
    loader: Any = getattr(import_module(module), function)
    writer: CardGenerator = loader(card, models)
    if not card.manifest.index:
        return writer
    from kcard.cards.kinds import both, retrieval

    return both.Both(writer, retrieval.load(card, models))
