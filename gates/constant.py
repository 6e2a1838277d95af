"""The two gates that need no question: always ask the cards, never ask them (Thrust, section 4, baselines)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kcard.protocols import LLM, Array
from kcard.request import Example

__all__ = ["Always", "Never"]


@dataclass(frozen=True)
class Always:
    """Every question goes to the cards: score 0, as if the LLM knew nothing."""

    llm: LLM
    examples: Sequence[Example] = ()

    def knows(self, questions: Sequence[str]) -> Array:
        return np.zeros(len(questions), dtype=np.float32)


@dataclass(frozen=True)
class Never:
    """No question goes to the cards: score 1, as if the LLM knew everything."""

    llm: LLM
    examples: Sequence[Example] = ()

    def knows(self, questions: Sequence[str]) -> Array:
        return np.ones(len(questions), dtype=np.float32)
