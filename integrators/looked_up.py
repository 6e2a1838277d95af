"""A model beside an index of the same corpus: what the model wrote counts where the index has nothing near.

Both can state only what stands in the corpus. Of 204 XQuAD questions the model alone was right on 2, and where both
were at hand, taking the model's document for the nearer one lost more than it gained (docs/integrators.md).
"""

from collections.abc import Sequence

from kcard.answer import Passage

__all__ = ["outdone"]

CLEARLY = 0.2


def outdone(passages: Sequence[Passage], relevance: Sequence[float]) -> list[bool]:
    """Which passages were written by the model of a card whose index looked up something as good for the question.

    relevance: of each passage, in [-1, 1]. A written one holds its ground where its relevance is more than 0.2
    above that of all that its card looked up.
    """
    best: dict[str, float] = {}
    for p, near in zip(passages, relevance, strict=True):
        if p.source is not None:
            best[p.card] = max(best.get(p.card, -1.0), near)
    return [
        p.source is None and p.card in best and near <= best[p.card] + CLEARLY
        for p, near in zip(passages, relevance, strict=True)
    ]
