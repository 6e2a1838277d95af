"""Recitation-augmented answering (RECITE): the LLM recites passages, and the most frequent of its answers counts.

Sun et al. (ICLR 2023): section 3.2, recite and answer; section 3.3, self-consistency, one answer for each of 20
recitations drawn at temperature 0.7.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kcard.answer import Passage
from kcard.integrators.baselines.apart import read_apart, settled
from kcard.integrators.baselines.drawn import Drawn
from kcard.protocols import LLM
from kcard.request import Reply, Request

__all__ = ["Majority", "recitations"]

TEMPERATURE = 0.7


def recitations(samples: int) -> Drawn:
    """The source: `samples` recitations (the paper: 20)."""
    return Drawn("recitation", Request("recite", ""), samples, TEMPERATURE)


@dataclass(frozen=True)
class Majority:
    """The most frequent answer; of equally frequent ones the first."""

    def replies(
        self, llm: LLM, requests: Sequence[Request], passages: Sequence[Sequence[Passage]]
    ) -> list[Reply]:
        apart: list[list[tuple[str, ...]]] = [[(p.knowledge,) for p in read] or [()] for read in passages]
        return [settled(found, [1.0] * len(found)) for found in read_apart(llm, requests, apart)]
