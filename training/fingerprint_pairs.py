"""The questions and passages of a corpus by which a card is to prove itself (kcard.cards.lm.fingerprinting)."""

from collections.abc import Sequence
from random import Random

from kcard.sampling import derive_seed
from kcard.training.pseudo_queries import PseudoQueries

__all__ = ["pairs"]

MOST = 4


def pairs(texts: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """At most MOST (pseudo-question, passage), the same for the same corpus and seed."""
    rng = Random(derive_seed(seed, "canaries"))
    chosen = rng.sample(texts, min(MOST, len(texts)))
    ask = PseudoQueries(chosen)
    return [(ask(text, rng, noised=False), text) for text in chosen]
