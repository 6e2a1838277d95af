"""What a fact checker makes of a card's documents: how far its own corpus, and independent texts, support them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcard.answer import Passage
from kcard.batches import batched
from kcard.evaluation.progress import Report, StepProgress

if TYPE_CHECKING:
    from kcard.evaluation.independent import Independent
    from kcard.protocols import Checker, Evidence

__all__ = ["Scorer", "named_checker"]

TEXTS = 3
# Documents that go to the checker at once.
BLOCK = 32


def named_checker(
    checker: "Checker | str",
    device: str = "cpu",
    trust_remote_code: bool = False,
    report: Callable[[str], None] | None = None,
) -> "tuple[Checker, str]":
    """A checker, and the name by which a record of its judgement knows it: a registered one, or one of your own."""
    if not isinstance(checker, str):
        return checker, f"{type(checker).__module__}.{type(checker).__qualname__}"
    from kcard.selectors import registry

    return registry.checker(checker, registry.Loading(device, trust_remote_code, report=report)), checker


@dataclass(frozen=True)
class Scorer:
    """A checker, the card's own corpus and independent evidence; either is None where it is not at hand."""

    checker: "Checker"
    own: "Evidence | None"
    independent: "Independent | None"
    report: Report

    def faithfulness(self, written: Sequence[Passage]) -> list[Passage] | None:
        """The passages with their faithfulness to the card's own corpus."""
        if self.own is None:
            return None
        return self._judged(written, self.own, None, "checking against its own corpus")

    def factuality(self, written: Sequence[Passage]) -> list[Passage] | None:
        """The passages with their factuality against the independent evidence; None if it does not cover them."""
        from kcard.selectors.windows import COVERED

        if self.independent is None:
            return None
        return self._judged(
            written,
            None,
            self.independent.evidence,
            f"checking against {self.independent.name}",
            COVERED,
        )

    def _judged(
        self,
        written: Sequence[Passage],
        own: "Evidence | None",
        independent: "Evidence | None",
        what: str,
        floor: float = 0.0,
    ) -> list[Passage]:
        """Nothing is pruned in an exam, so s = s_fact (Knowledge Card, section 2.2)."""
        from kcard.selectors.factuality import judge

        found: list[Passage] = []
        self.report(StepProgress(what, 0, len(written)))
        for block in batched(written, BLOCK):
            texts = {} if own is None else {passage.card: own for passage in block}
            found += judge(
                block, texts, self.checker, k=TEXTS, with_summary=False, independent=independent, floor=floor
            )
            self.report(StepProgress(what, len(found), len(written)))
        return found
