"""What tokens cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from kcard.evaluation.runs.result import Result

__all__ = ["Prices"]

MILLION = 1_000_000


@dataclass(frozen=True)
class Prices:
    """Prices of a million tokens, in any currency; None where they are not known."""

    tokens_in: float | None = None
    tokens_out: float | None = None

    def cost(self, results: Iterable[Result]) -> float | None:
        """What the results cost; None where a price or the tokens of a result are not known."""
        if self.tokens_in is None and self.tokens_out is None:
            return None
        total = 0.0
        for result in results:
            if result.tokens_in is None or result.tokens_out is None:
                return None
            total += result.tokens_in * (self.tokens_in or 0) + result.tokens_out * (self.tokens_out or 0)
        return total / MILLION
