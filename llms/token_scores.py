"""How sure an LLM was of each token that it wrote."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kcard.request import TokenScores

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["DRAFT_TOKENS", "from_logits", "from_top"]

DRAFT_TOKENS = 20


def from_top(chosen: float, top: Iterable[float]) -> TokenScores:
    """From log-probabilities: of the token, and of the likeliest at its place.

    What these leave of the mass counts as one more token, so the entropy is rather too low; where only one is
    given, that rest is also the second.
    """
    known = sorted((math.exp(min(value, 0.0)) for value in top), reverse=True) or [math.exp(min(chosen, 0.0))]
    rest = max(1 - sum(known), 0.0)
    second = known[1] if len(known) > 1 else rest
    return TokenScores(min(chosen, 0.0), max(known[0] - second, 0.0), _entropy([*known, rest]))


def from_logits(logits: "npt.ArrayLike", tokens: Sequence[int]) -> tuple[TokenScores, ...]:
    """From logits of shape (n, vocabulary) before each of n tokens; over the whole vocabulary, so exactly."""
    values = np.asarray(logits, np.float64)
    shifted = values - values.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    mass = np.exp(logs)
    second, first = np.partition(mass, -2, axis=-1)[:, -2:].T
    entropies = -np.sum(mass * np.where(mass > 0, logs, 0.0), axis=-1)
    return tuple(
        TokenScores(min(float(logs[i, token]), 0.0), float(first[i] - second[i]), float(entropies[i]))
        for i, token in enumerate(tokens)
    )


def _entropy(mass: Sequence[float]) -> float:
    return -sum(p * math.log(p) for p in mass if p > 0)
