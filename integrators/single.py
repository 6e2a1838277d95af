"""The paper's step of top-down: a card writes, its most factual document is kept (Knowledge Card, algorithm 2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kcard.answer import Passage
from kcard.integrators import grouped
from kcard.integrators.gathered import Gathered, distinct
from kcard.integrators.looked_up import outdone
from kcard.integrators.selectors import Selectors
from kcard.protocols import Generator
from kcard.sampling import Sampling
from kcard.selectors.factuality import judge

__all__ = ["SingleDocument"]


@dataclass(frozen=True)
class SingleDocument:
    """n1 documents are written; they are not pruned. Of what a card's model wrote the best is taken, not drawn.

    What an index looked up is kept whole: its passages are true to the corpus whatever was asked, and which of them
    answers the question the LLM sees best (docs/integrators.md). `min_factuality`: a document that is known to be
    supported less is not kept; 0 is the paper's.
    """

    writer: Generator
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
            self.selectors.own,
            self.selectors.checker,
            with_summary=False,
            independent=self.selectors.independent,
        )
        gathered, start = [], 0
        for group, out in zip(candidates, outdone(questions, candidates), strict=True):
            gathered.append(self._chosen(judged[start : start + len(group)], out))
            start += len(group)
        return gathered

    def _chosen(self, passages: Sequence[Passage], out: Sequence[bool]) -> Gathered:
        """The passages, those that the LLM reads marked and in front, looked up ones by their index's score. `out`:
        which passages the index of their card outdoes."""
        standing = [i for i in range(len(passages)) if not out[i]]
        able = [i for i in standing if (score := passages[i].support) is None or score >= self.min_factuality]
        looked_up = [i for i in able if passages[i].source is not None]
        recited = [i for i in able if passages[i].source is None]
        best: dict[str, int] = {}
        for i in sorted(recited, key=lambda i: -_known(passages[i])):
            best.setdefault(passages[i].card, i)
        kept = sorted(best.values())
        kept += sorted(looked_up, key=lambda i: -_score(passages[i]))
        others = [i for i in range(len(passages)) if i not in kept]
        marked = [replace(passages[i], kept=True) for i in kept] + [
            replace(passages[i], kept=False) for i in others
        ]
        return Gathered(tuple(marked))


def _known(passage: Passage) -> float:
    """Unknown support ranks below every known one."""
    return -1.0 if passage.support is None else passage.support


def _score(passage: Passage) -> float:
    return passage.source.score if passage.source else 0.0
