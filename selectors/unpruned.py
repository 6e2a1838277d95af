"""No pruning, to measure what pruning is good for (Knowledge Card, figure 3)."""

from collections.abc import Sequence

__all__ = ["Unpruned"]


class Unpruned:
    def prune(self, question: str, texts: Sequence[str]) -> list[str]:
        """Each text as it is."""
        del question
        return list(texts)
