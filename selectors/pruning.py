"""Pruning: what of a document serves the question (Knowledge Card, section 2.2), by extraction."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kcard.selectors.relevance import Cosine
from kcard.sentences import whole

__all__ = ["Extractive"]


@dataclass(frozen=True)
class Extractive:
    """Keeps the sentences whose cosine with the question is at least `ratio` of the best one's.

    It copies and never rewrites, so it adds no fact. A sentence that was cut off at the end goes where a
    whole one is there; `most` sentences stay at most; a text of one sentence is returned as it is.
    """

    ratio: float = 0.75
    most: int = 3

    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Each text condensed; its sentences stay in their order."""
        sentences = [whole(text) for text in texts]
        scored = [s for group in sentences if len(group) > 1 for s in group]
        cosine = dict(zip(scored, Cosine().scores(question, scored).tolist(), strict=True))
        return [self._condensed(text, group, cosine) for text, group in zip(texts, sentences, strict=True)]

    def _condensed(self, text: str, sentences: list[str], cosine: dict[str, float]) -> str:
        if len(sentences) < 2:
            return sentences[0] if sentences and len(sentences[0]) < len(text.strip()) else text
        distinct = list(dict.fromkeys(sentences))
        scores = np.array([cosine[s] for s in distinct])
        floor = self.ratio * scores.max() if scores.max() > 0 else scores.max()
        order = [i for i in np.argsort(-scores, kind="stable") if scores[i] >= floor][: self.most]
        return " ".join(distinct[i] for i in sorted(order))
