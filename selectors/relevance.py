"""Relevance: how near a text lies to the question (Knowledge Card, section 2.2)."""

from collections.abc import Callable, Sequence

import numpy as np

from kcard.numbers import Agreement, agreement
from kcard.protocols import Array

__all__ = ["Cosine", "MiniLM", "top"]


class Cosine:
    """Cosine of the embeddings of all-MiniLM-L6-v2, as in the paper. An empty text scores like any other: low."""

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Shape (n,), in [-1, 1]."""
        from kcard import embeddings

        if not texts:
            return np.zeros(0, dtype=np.float32)
        distinct = list(dict.fromkeys(texts))
        vectors = embeddings.embed([question, *distinct])
        cosines = np.clip(vectors[1:] @ vectors[0], -1.0, 1.0)
        place = {text: i for i, text in enumerate(distinct)}
        found: Array = cosines[[place[text] for text in texts]]
        return found

    def standing(self, texts: Sequence[str]) -> Callable[[str], Array]:
        """See Precomputed; equal texts score alike, as they do in `scores`."""
        from kcard import embeddings

        distinct = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        vectors = embeddings.matrix(list(distinct))
        places = np.array([distinct[text] for text in texts], dtype=np.int64)

        def scores(question: str) -> Array:
            found: Array = np.clip(vectors @ embeddings.embed([question])[0], -1.0, 1.0)[places]
            return found

        return scores


class MiniLM:
    """That cosine times the agreement of the question's numbers: the encoder hardly tells 2020 from 2022.

    It departs from the paper, whose relevance is the cosine alone.
    """

    def scores(self, question: str, texts: Sequence[str]) -> Array:
        """Shape (n,), in [-1, 1]."""
        cosines = Cosine().scores(question, texts)
        agreed = np.array([agreement(question, text) for text in texts], dtype=np.float32)
        return np.where(cosines > 0, cosines * agreed, cosines)

    def standing(self, texts: Sequence[str]) -> Callable[[str], Array]:
        """See Precomputed."""
        cosines = Cosine().standing(texts)
        agreement = Agreement(texts)

        def scores(question: str) -> Array:
            found = cosines(question)
            return np.where(found > 0, found * agreement(question).astype(np.float32), found)

        return scores


def top(scores: Array | Sequence[float], k: int, floor: float = 0.0) -> list[int]:
    """Indices of the k highest scores, best first; of equal ones the earlier stands first.

    `floor` in [0, 1]: a score below that share of the best one is left out; 0 leaves none out.
    """
    order = [int(i) for i in np.argsort(-np.asarray(scores), kind="stable")[: max(k, 0)]]
    if not floor or not order or scores[order[0]] <= 0:
        return order
    return [i for i in order if scores[i] >= floor * scores[order[0]]]
