"""No fact check, to measure what the factuality selector is good for (Knowledge Card, figure 3)."""

from collections.abc import Sequence

import numpy as np

from kcard.protocols import Array, Pair

__all__ = ["Unchecked"]


class Unchecked:
    """Takes every claim for supported: of equal scores the draw is a choice by chance."""

    def support(self, pairs: Sequence[Pair]) -> Array:
        """Shape (n,), all 1."""
        return np.ones(len(pairs), dtype=np.float32)
