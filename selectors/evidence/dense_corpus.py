"""A dense retriever: passages and questions as vectors of one encoder, the largest dot products first.

With Contriever's vectors (the mean over token states, not normalised) this is the retriever of Adaptive Retrieval
(section 5); with vectors of unit length the dot product is the cosine. Every passage is compared, so nothing is
approximate, and all vectors are in memory: four bytes a number, 3 GB for a million passages of 768.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from kcard.answer import Source
from kcard.embeddings import remembered
from kcard.errors import CorpusError
from kcard.protocols import Array

__all__ = ["DenseCorpus"]

Embed = Callable[[Sequence[str]], Array]


class DenseCorpus:
    """Source texts, found by the vectors that `embed` gives them; equal scores stand in the order of the sources.

    embed   texts to vectors, shape (n, d)
    model   the digest of all that decides a vector but the text; a passage is embedded once for each (kcard.cache)

    Raises CorpusError where there is no text.
    """

    def __init__(self, sources: Sequence[Source], embed: Embed, model: str, name: str = "corpus") -> None:
        if not sources:
            raise CorpusError(f"evidence {name!r} has no text: add at least one sentence")
        self.name = name
        self._sources, self._embed, self._model = sources, embed, model
        self._vectors = remembered(model, [source.in_context for source in sources], embed)

    def __len__(self) -> int:
        return len(self._sources)

    def find(self, claim: str, k: int) -> list[Source]:
        """The `k` sources with the largest dot product, or all if there are fewer; their scores are any number."""
        scores = self._vectors @ remembered(self._model, [claim], self._embed)[0]
        best = np.argsort(-scores, kind="stable")[: max(k, 0)]
        return [replace(self._sources[row], score=float(scores[row])) for row in best]
