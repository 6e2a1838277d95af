"""The numbers of the embedded card, and which prompt style suits a corpus."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from kcard.training.spans import frame

__all__ = ["Recipe", "Style", "choose_style"]

Style = Literal["tokens", "encoder-prefix"]
ALIKE = 64


@dataclass(frozen=True)
class Recipe:
    """Every number of the recipe; the defaults were measured (docs/training.md).

    exposures     how often each fact is seen; a fact told in r passages counts r times
    floor         the fewest steps, however small the corpus
    query_share   how many examples carry a pseudo-query; the others are the passage alone
    vectors       prefix vectors (encoder-prefix)
    noise         standard deviation, per dimension, of the noise on question embeddings (encoder-prefix)
    queries       pseudo-queries that are embedded for each fact (encoder-prefix): as many as `embedded` texts
                  in all allow, between these two numbers
    """

    style: Style = "tokens"
    objective: Literal["recite", "clm"] = "recite"
    width: int = 128
    layers: int = 4
    heads: int = 2
    positions: int = 256
    vocabulary: int = 3000
    batch_tokens: int = 1024
    exposures: float = 100.0
    epochs: float | None = None
    floor: int = 600
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    decay: float = 0.01
    warm: int = 20
    query_share: float = 1.0
    vectors: int = 4
    noise: float = 0.05
    queries: tuple[int, int] = (16, 64)
    embedded: int = 10_000
    seed: int = 0


def choose_style(texts: Sequence[str]) -> tuple[Style, str]:
    """(style, why): encoder-prefix, but tokens where half the passages have `ALIKE` like them or more.

    Passages are alike that differ in names and numbers only. A sentence embedding blurs those, and tokens tell
    them apart; everything else, prose above all, is asked in other words than its own, which tokens don't
    bridge and embeddings do (measured: docs/training.md).
    """
    frames = Counter(frame(text) for text in texts)
    alike = median(frames[frame(text)] for text in texts)
    if alike >= ALIKE:
        return "tokens", f"half its passages have {alike:.0f} and more that differ in names and numbers only"
    return "encoder-prefix", "its passages differ in more than names and numbers"
