"""Writes a card's routing.json: the profile of its passages, and of the questions that it answered right."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from kcard.cards.format.passages import INDEX, passages
from kcard.cards.format.routing import ROUTING, profile_of
from kcard.files import write_text
from kcard.manifest import Manifest
from kcard.protocols import Array
from kcard.words import is_english

if TYPE_CHECKING:
    from kcard.answer import Source

__all__ = ["write_profile"]

READ = 20_000  # passages whose words and embeddings count, spread over the corpus


def write_profile(folder: Path, manifest: Manifest, answered: Sequence[str] = ()) -> None:
    """Write routing.json, or remove it where no text of the corpus travels with the card.

    answered  questions that the card answered right

    It is not sealed. Of questions, centroids and hashed words are kept. Raises CardError where the passages
    can't be read.
    """
    found = passages(folder)
    if not len(found):
        (folder / ROUTING).unlink(missing_ok=True)
        return
    spread = found[:: -(-len(found) // READ)]
    texts = (passage.in_context for passage in spread)
    vectors = [*_vectors(folder, spread), *_embedded(answered)] if is_english(manifest.language) else []
    made = profile_of(manifest.language, chain([manifest.description], texts, answered), *vectors)
    write_text(folder / ROUTING, made.to_json())


def _vectors(folder: Path, spread: Sequence["Source"]) -> list[Array]:
    """Those of the passages: as the index has them, or made now."""
    from kcard.cards.format import dense

    index = dense.load(folder / INDEX)
    return _embedded([p.in_context for p in spread]) if index is None else [index.sample(READ)]


def _embedded(texts: Sequence[str]) -> list[Array]:
    from kcard import static_embeddings

    return [static_embeddings.embed(texts)] if texts else []
