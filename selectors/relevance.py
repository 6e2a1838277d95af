"""Relevance: how near a text lies to the question (Knowledge Card, section 2.2)."""

from collections.abc import Sequence

import numpy as np

from kcard.protocols import Array

__all__ = ["MiniLM", "top"]


class MiniLM:
    """Cosine of the embeddings of all-MiniLM-L6-v2. An empty text scores like any other: low."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Shape (n,), in [-1, 1]."""
        from kcard import encoder

        if not texts:
            return np.zeros(0, dtype=np.float32)
        distinct = list(dict.fromkeys(texts))
        vectors = encoder.embed([question, *distinct])
        cosines = np.clip(vectors[1:] @ vectors[0], -1.0, 1.0)
        place = {text: i for i, text in enumerate(distinct)}
        found: Array = cosines[[place[text] for text in texts]]
        return found


def top(scores: Array, k: int) -> list[int]:
    """Indices of the k highest scores, best first; of equal ones the earlier stands first."""
    return [int(i) for i in np.argsort(-np.asarray(scores), kind="stable")[: max(k, 0)]]
