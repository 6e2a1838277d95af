"""The paper's step of top-down: one card writes, its most factual document is kept (Knowledge Card, algorithm 2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.answer import Passage
from kcard.integrators import grouped
from kcard.integrators.gathered import Gathered, distinct
from kcard.integrators.looked_up import outdone
from kcard.integrators.selectors import Selectors
from kcard.protocols import Writer
from kcard.sampling import Sampling
from kcard.selectors.factuality import judge

__all__ = ["SingleDocument"]


@dataclass(frozen=True)
class SingleDocument:
    """n1 documents are written; they are not pruned, and the best is taken, not drawn.

    Where an index wrote too, the best is by factuality times nearness to the question (docs/integrators.md).
    `min_factuality`: a best document that is known to have less is not kept, so that none is; 0 is the paper's.
    """

    writer: Writer
    selectors: Selectors
    n1: int = 3
    min_factuality: float = 0.0

    def run(
        self, questions: Sequence[str], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Gathered]:
        written = grouped.write(self.writer, questions, cards, self.n1, sampling)
        candidates = [distinct(passages) for passages in written]
        judged = judge(
            [p for group in candidates for p in group],
            self.selectors.evidence,
            self.selectors.checker,
            with_summary=False,
        )
        gathered, start = [], 0
        for question, group in zip(questions, candidates, strict=True):
            gathered.append(self._best(question, judged[start : start + len(group)]))
            start += len(group)
        return gathered

    def _best(self, question: str, passages: Sequence[Passage]) -> Gathered:
        worth = [_known(p) for p in passages]
        if any(p.source is not None for p in passages):
            worth = self._nearness(question, passages)
        best = max(range(len(passages)), key=lambda i: (worth[i], -i), default=None)
        if (
            best is not None
            and (score := passages[best].factuality) is not None
            and score < self.min_factuality
        ):
            best = None
        return Gathered(tuple(replace(p, kept=i == best) for i, p in enumerate(passages)))

    def _nearness(self, question: str, passages: Sequence[Passage]) -> list[float]:
        """Factuality times nearness: what an index looked up is true to its corpus whatever was asked.

        Nearness is the index's own score, and the relevance of what a model wrote, at least 0; what is outdone
        ranks below all else.
        """
        relevance = self.selectors.relevance.scores(question, [p.text for p in passages]).tolist()
        near = [r if p.source is None else p.source.score for p, r in zip(passages, relevance, strict=True)]
        unknown = all(p.factuality is None for p in passages)
        return [
            -2.0 if out else max(score, 0.0) * (1.0 if unknown else _known(p))
            for p, score, out in zip(passages, near, outdone(passages, relevance), strict=True)
        ]


def _known(passage: Passage) -> float:
    """Unknown factuality ranks below every known one."""
    return -1.0 if passage.factuality is None else passage.factuality
