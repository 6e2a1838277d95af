"""The fingerprint of a card, made when it is: from the files as they were written, loaded as they will be.

What a fingerprint is, and how two are compared, stands in kcard.cards.format.fingerprint.
"""

from collections.abc import Sequence
from pathlib import Path

from kcard.cards.format.fingerprint import FINGERPRINT, Fingerprint, Pair
from kcard.cards.format.folder import Card
from kcard.errors import CardError
from kcard.files import write_text
from kcard.manifest import Manifest

__all__ = ["fingerprint_pairs", "write"]

OWN = 4
# What is asked where the card's own passages may not travel; and texts that no corpus holds, which show a
# model's weights better than passages that it knows so well that every token of them is certain.
NEUTRAL: tuple[Pair, ...] = (
    ("What does the baker do before dawn?", "The baker lights the oven and kneads the dough before dawn."),
    ("Where was the bridge built?", "The old bridge was built of grey stone across the river's narrow part."),
    ("Who found the letter?", "A gardener found the letter under the roots of a pear tree in 1871."),
    ("How many ships came back?", "Of the nine ships that left the harbour, only four came back in spring."),
)
FOREIGN = (
    "In winter the dormouse sleeps for about six months in a nest of leaves.",
    "The shop on the corner opens at half past seven and closes at noon.",
    "The engineers stopped the mill because the water of the brook was too low.",
    "A sonnet is a poem of fourteen lines that mostly speaks of love.",
)


def write(folder: Path, manifest: Manifest, pairs: Sequence[Pair], device: str = "cpu") -> Fingerprint:
    """Measure the card whose model files lie in `folder` and write canaries.json there.

    pairs   questions and passages that answer them, from the card's corpus

    To be called before the folder is sealed. Raises what loading the card does, and CardError for an adapter
    that changes nothing.
    """
    from kcard.cards.lm.fallback.card import CausalCard
    from kcard.cards.lm.loader import Loader

    found = CausalCard(Card(folder, manifest), Loader(device=device)).measure(
        fingerprint_pairs(manifest, pairs)
    )
    if manifest.is_adapter and found.shift == 0:
        raise CardError(
            f"card {manifest.name!r}: the adapter in {folder} changes nothing in its base {manifest.base.name!r}: "
            "train it for longer, or save it as peft does"
        )
    write_text(folder / FINGERPRINT, found.to_json())
    return found


def fingerprint_pairs(manifest: Manifest, pairs: Sequence[Pair]) -> list[Pair]:
    """What a card is to be asked: at most OWN of `pairs`, none where only hashes of the passages travel, and
    each question again, followed by a text that has nothing to do with it."""
    own = NEUTRAL if manifest.evidence == "hashes" or not pairs else tuple(pairs)[:OWN]
    return [*own, *((question, text) for (question, _), text in zip(own, FOREIGN, strict=False))]
