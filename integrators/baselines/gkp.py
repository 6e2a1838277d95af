"""Generated knowledge prompting: the LLM writes statements, and the surest of its answers counts.

Liu et al. (ACL 2022): section 2.1 draws 20 statements of the LLM at temperature 1 from demonstrations; section 2.2
answers with each statement and without any, and takes the answer of the highest probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.answer import Passage
from kcard.integrators.baselines.apart import Candidate, read_apart, settled
from kcard.integrators.baselines.drawn import Drawn
from kcard.protocols import LLM
from kcard.request import Reply, Request

__all__ = ["Surest", "statements"]

TEMPERATURE = 1.0


def statements(samples: int) -> Drawn:
    """The source: `samples` statements (the paper: 20)."""
    return Drawn("gkp", Request("knowledge", ""), samples, TEMPERATURE)


@dataclass(frozen=True)
class Surest:
    """The answer of the highest probability, with one statement or with none; the most frequent, where an answer's
    probability is not known."""

    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        apart: list[list[tuple[str, ...]]] = [[(), *((p.knowledge,) for p in read)] for read in passages]
        return [_surest(found) for found in read_apart(llm, requests, apart)]


def _surest(found: Sequence[Candidate]) -> Reply:
    sure = [c.probability for c in found if c.probability is not None]
    if len(sure) < len(found):
        return settled(found, [1.0] * len(found))
    able = [i for i, c in enumerate(found) if c.answers] or [*range(len(found))]
    return found[max(able, key=sure.__getitem__)].reply
