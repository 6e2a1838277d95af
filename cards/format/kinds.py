"""The kinds of cards: which files each must have, and what loads it. A new kind is one row of KINDS.

Loaders (kcard.cards.kinds) are named, not imported, so that reading a manifest loads nothing heavy.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kcard.cards.format.passages import INDEX, PASSAGES
from kcard.errors import CardError
from kcard.manifest import Manifest

__all__ = ["GRAPH", "INDEXED", "KINDS", "REFERENCE", "SEARCH", "Kind", "kind_of"]


@dataclass(frozen=True)
class Kind:
    """`files`: of each tuple, at least one must be in the folder. `loader`: module:function."""

    files: tuple[tuple[str, ...], ...]
    loader: str


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
WHOLE = (("config.json",), ("model.safetensors", "model.safetensors.index.json"), TOKENIZER)
GRAPH, SEARCH, REFERENCE = "graph.tsv", "search.json", "reference.json"
ADAPTER = (("adapter_config.json",), ("adapter_model.safetensors",), TOKENIZER)
INDEXED = ((PASSAGES,), (f"{INDEX}/params.index.json",))

KINDS: Mapping[str, Kind] = {
    "full": Kind(WHOLE, "kcard.cards.kinds.model:load"),
    "lora": Kind(ADAPTER, "kcard.cards.kinds.model:load"),
    "prefix": Kind(ADAPTER, "kcard.cards.kinds.model:load"),
    "retrieval": Kind(INDEXED, "kcard.cards.kinds.retrieval:load"),
    "graph": Kind((*INDEXED, (GRAPH,)), "kcard.cards.kinds.graph:load"),
    "search": Kind(((SEARCH,),), "kcard.cards.kinds.search:load"),
    "reference": Kind(((REFERENCE,),), "kcard.cards.kinds.reference:load"),
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
