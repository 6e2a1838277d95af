"""Relevance left to chance, to measure what relevance is good for (Knowledge Card, figure 3)."""

from collections.abc import Sequence

import numpy as np

from kcard.protocols import Array
from kcard.sampling import derive_seed

__all__ = ["Chance"]

LOW = 0.99


class Chance:
    """Scores that say nothing. They lie so close together that no floor cuts any off."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Shape (n,), in [0.99, 1]; by question and text, so that a run can be repeated."""
        drawn = [np.random.default_rng(derive_seed(0, question, text)).random() for text in texts]
        return np.array([LOW + (1 - LOW) * x for x in drawn], dtype=np.float32)
