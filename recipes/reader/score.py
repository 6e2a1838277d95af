"""Scores of the reader: exact match after the usual normalisation, and how often it says that nothing answers."""

import re
import string
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kcard.llms.reader import best
from kcard.llms.span_network import Network
from recipes.reader.synth import Example

__all__ = ["Figures", "figures", "normalised"]


@dataclass(frozen=True)
class Figures:
    """Shares in [0, 1] of `count` examples; `milliseconds` of wall time for one question."""

    count: int
    exact: float
    said_nothing: float
    milliseconds: float


def normalised(text: str) -> str:
    """Lower case, without punctuation, articles and extra spaces (as SQuAD's evaluation does it)."""
    plain = "".join(c for c in text.lower() if c not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", plain).split())


def figures(network: Network, examples: Sequence[Example]) -> Figures:
    began = time.perf_counter()
    found = [best(network, e.question, e.passages) for e in examples]
    spent = time.perf_counter() - began
    exact = sum(normalised(s.text) == normalised(e.answer) for s, e in zip(found, examples, strict=True))
    count = len(examples)
    return Figures(count, exact / count, sum(s.null for s in found) / count, 1000 * spent / count)
