"""REPLUG: each retrieved passage is read alone, and the answers are ensembled (Shi et al., 2023, section 3.2).

The weight of an answer is the sum, over the passages that gave it, of the passage's share (the softmax of retrieval
scores) times the probability of the answer with it. Where the LLM gives no probabilities, the shares alone count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kcard.answer import Passage
from kcard.integrators.baselines.apart import Candidate, read_apart, settled
from kcard.protocols import LLM, Array
from kcard.request import Reply, Request

__all__ = ["Replug"]


@dataclass(frozen=True)
class Replug:
    """`relative`: scores are divided by the best one first. BM25's need that: they have no common scale, and of raw
    ones, often 10 apart, the softmax would leave the best passage alone."""

    relative: bool

    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        """A question for which nothing was retrieved is answered without knowledge."""
        apart: list[list[tuple[str, ...]]] = [[(p.knowledge,) for p in read] or [()] for read in passages]
        rows = zip(passages, read_apart(llm, requests, apart), strict=True)
        return [settled(found, self._weights(read, found)) for read, found in rows]

    def _weights(self, read: Sequence[Passage], found: Sequence[Candidate]) -> list[float]:
        sure = [1.0 if c.probability is None else c.probability for c in found]
        if any(c.probability is None for c in found):
            sure = [1.0] * len(found)
        shares = self._shares([p.source.score if p.source else 0.0 for p in read] or [0.0])
        return [float(share) * probability for share, probability in zip(shares, sure, strict=True)]

    def _shares(self, scores: Sequence[float]) -> Array:
        """The softmax of the scores, shape (n,), sum 1."""
        given = np.asarray(scores, np.float32)
        if self.relative and given.max() > 0:
            given = given / given.max()
        powers = np.exp(given - given.max())
        shares: Array = powers / powers.sum()
        return shares
