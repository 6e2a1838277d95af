"""How documents are sampled, and the one place that derives seeds."""

import hashlib
from dataclasses import dataclass

__all__ = ["Sampling", "derive_seed"]


@dataclass(frozen=True)
class Sampling:
    """Decoding settings of a card. `temperature` 0 is greedy; `tokens` is the longest document in tokens."""

    temperature: float = 1.0
    tokens: int = 100
    top_k: int = 50
    seed: int = 0


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed for `parts`, such as (seed, question, card, document number).

    It depends on nothing else, so a document does not change with the batch that it is written in.
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
