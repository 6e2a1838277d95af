"""Rows made from two similar real rows, by exchanging their evidence or their claims.

If one text supports a claim and another refutes it, the first text does not support the second. If a text supports one
claim and refutes another, the first claim does not support the second.
"""

from collections.abc import Iterator, Sequence
from random import Random

from recipes.checker.rows import REFUTES, SUPPORTS, UNSUPPORTED, Row


def contrasts(rows: Sequence[Row], share: float, rng: Random) -> Iterator[Row]:
    """Such a row for about `share` of the refuted ones, and a refuting text that supports itself for half of that."""
    by_claim = {row.claim: row.evidence for row in rows if row.label == SUPPORTS}
    by_evidence = {row.evidence: row.claim for row in rows if row.label == SUPPORTS}
    for row in rows:
        if row.label != REFUTES or rng.random() >= share:
            continue
        text, claim = by_claim.get(row.claim), by_evidence.get(row.evidence)
        if text and rng.random() < 0.5:
            yield Row(row.evidence, text, UNSUPPORTED)
            yield Row(text, text, SUPPORTS)
        elif claim:
            yield Row(row.claim, claim, UNSUPPORTED)
