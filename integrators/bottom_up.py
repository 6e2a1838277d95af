"""Bottom-up: all cards write, the selectors choose, the LLM reads what is left (Knowledge Card, section 2.3).

It knows no model, no hub and no prompt: cards and selectors come through their protocols.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.answer import Passage
from kcard.integrators.gathered import Gathered, distinct
from kcard.integrators.selectors import Selectors
from kcard.protocols import Writer
from kcard.sampling import Sampling, derive_seed
from kcard.selectors.factuality import judge
from kcard.selectors.relevance import top
from kcard.selectors.sampling import draw

__all__ = ["BottomUp"]


@dataclass(frozen=True)
class BottomUp:
    """Every card writes n1 documents; relevance keeps n2, which are pruned; factuality keeps n3.

    Defaults are the paper's: n1=3, n2=5, n3=3. Exact duplicates are merged before relevance.
    """

    writer: Writer
    selectors: Selectors
    sampling: Sampling
    n1: int = 3
    n2: int = 5
    n3: int = 3

    def gather(self, questions: Sequence[str]) -> list[Gathered]:
        """One Gathered a question; kept passages come first, the most relevant of them in front."""
        names = [card.name for card in self.writer.cards]
        written = self.writer.write(questions, names, self.n1, self.sampling)
        ranked = [self._rank(q, passages) for q, passages in zip(questions, written, strict=True)]
        candidates = [self._prune(q, passages) for q, passages in zip(questions, ranked, strict=True)]
        judged = judge(
            [p for group in candidates for p in group], self.selectors.evidence, self.selectors.checker
        )
        gathered, start = [], 0
        for question, passages, group in zip(questions, ranked, candidates, strict=True):
            chosen = judged[start : start + len(group)]
            start += len(group)
            gathered.append(Gathered(self._keep(question, chosen) + tuple(passages[len(group) :])))
        return gathered

    def _rank(self, question: str, passages: Sequence[Passage]) -> list[Passage]:
        """Distinct non-empty passages with their relevance, most relevant first."""
        candidates = distinct(passages)
        scores = self.selectors.relevance.scores(question, [p.text for p in candidates])
        order = top(scores, len(candidates))
        return [replace(candidates[i], relevance=float(scores[i])) for i in order]

    def _prune(self, question: str, ranked: Sequence[Passage]) -> list[Passage]:
        nearest = ranked[: self.n2]
        pruned = self.selectors.pruner.prune(question, [p.text for p in nearest])
        return [replace(p, pruned=text) for p, text in zip(nearest, pruned, strict=True)]

    def _keep(self, question: str, judged: Sequence[Passage]) -> tuple[Passage, ...]:
        kept = set(
            draw([p.factuality for p in judged], self.n3, seed=derive_seed(self.sampling.seed, question))
        )
        marked = [replace(p, kept=i in kept) for i, p in enumerate(judged)]
        return tuple(sorted(marked, key=lambda p: not p.kept))
