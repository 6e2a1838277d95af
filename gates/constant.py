"""The two gates that need no question: always ask the cards, never ask them (Thrust, section 4, baselines)."""

from collections.abc import Sequence

import numpy as np

from kcard.protocols import LLM, Array
from kcard.request import Example

__all__ = ["Always", "Never"]


class Always:
    """Every question goes to the cards: score 0, as if the LLM knew nothing."""

    def __init__(self, llm: LLM, examples: Sequence[Example] = ()) -> None:
        del llm, examples

    def knows(self, questions: Sequence[str]) -> Array:
        return np.zeros(len(questions), dtype=np.float32)


class Never:
    """No question goes to the cards: score 1, as if the LLM knew everything."""

    def __init__(self, llm: LLM, examples: Sequence[Example] = ()) -> None:
        del llm, examples

    def knows(self, questions: Sequence[str]) -> Array:
        return np.ones(len(questions), dtype=np.float32)
