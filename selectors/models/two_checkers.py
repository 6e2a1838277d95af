"""Two checkers as one: one for facts, one for whether a summary keeps to its document, as in the paper."""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.protocols import Array, Checker, Pair, Verdict
from kcard.selectors.verdicts import verdicts

__all__ = ["TwoCheckers"]


@dataclass(frozen=True)
class TwoCheckers:
    """`facts` is fact-check(claim | evidence), `summaries` sum-fact(summary | document); a summary is the claim."""

    facts: Checker
    summaries: Checker

    @property
    def sha256(self) -> str | None:
        """What names the scores of `support` and `judge`, where the checker of facts has such a name."""
        return getattr(self.facts, "sha256", None)

    def support(self, pairs: Sequence[Pair]) -> Array:
        """Those of `facts`."""
        return self.facts.support(pairs)

    def judge(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Those of `facts`."""
        return verdicts(self.facts, pairs)
