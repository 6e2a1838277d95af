"""What a checker says of pairs, held to its protocol: one verdict a pair, each score a number in [0, 1].

Checkers are anyone's to add; a score that is not a number must not decide what the LLM reads.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kcard.protocols import Array, Checker, Judging, Pair, Verdict
from kcard.scores import valid

__all__ = ["support", "verdicts"]


def support(checker: Checker, pairs: Sequence[Pair]) -> Array:
    """How far the evidence of each pair supports its claim, shape (n,), in [0, 1]; no pair, no call.

    Raises UsageError, which names the checker, where it gives another number of scores, or one that is not in [0, 1].
    """
    if not pairs:
        return np.zeros(0, dtype=np.float32)
    return valid(checker.support(pairs), len(pairs), (0.0, 1.0), _name(checker))


def verdicts(checker: Checker, pairs: Sequence[Pair]) -> list[Verdict]:
    """The same scores with the part of the evidence that decided: all of it where the checker does not show one."""
    if not isinstance(checker, Judging):
        scores = support(checker, pairs).tolist()
        return [Verdict(score, pair.evidence) for score, pair in zip(scores, pairs, strict=True)]
    if not pairs:
        return []
    found = checker.judge(pairs)
    scores = valid([verdict.score for verdict in found], len(pairs), (0.0, 1.0), _name(checker)).tolist()
    return [replace(verdict, score=score) for score, verdict in zip(scores, found, strict=True)]


def _name(checker: Checker) -> str:
    return f"checker {type(checker).__name__}"
