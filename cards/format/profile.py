"""Writes a card's routing.json: the profile of its passages, and of the questions that it answered right."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from kcard.cards.format.passages import passages
from kcard.cards.format.routing import ROUTING, profile_of
from kcard.files import write_text
from kcard.manifest import Manifest
from kcard.protocols import Array
from kcard.words import is_english

__all__ = ["write_profile"]

READ = 20_000  # passages whose words count, spread over the corpus
EMBEDDED, TOKENS = 64, 4096  # passages that are embedded, spread over the corpus, and their tokens in all


def write_profile(folder: Path, manifest: Manifest, answered: Sequence[str] = ()) -> None:
    """Write routing.json, or remove it where no text of the corpus travels with the card.

    answered  questions that the card answered right

    It is not sealed. Of questions, centroids and hashed words are kept. Raises CardError where the passages
    can't be read.
    """
    sources = passages(folder)
    if not len(sources):
        (folder / ROUTING).unlink(missing_ok=True)
        return
    texts = (passage.in_context for passage in sources[:: -(-len(sources) // READ)])
    vectors: list[Array] = []
    if is_english(manifest.language):
        from kcard import encoder

        spread = [passage.in_context for passage in sources[:: -(-len(sources) // EMBEDDED)]]
        vectors = [encoder.embed(spread, min(encoder.MAX_TOKENS, TOKENS // len(spread)))]
        vectors += [encoder.embed(answered)] if answered else []
    profile = profile_of(manifest.language, chain([manifest.description], texts, answered), *vectors)
    write_text(folder / ROUTING, profile.to_json())
