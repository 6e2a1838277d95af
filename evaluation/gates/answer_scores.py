"""The ways in which an LLM's answer is scored against the accepted ones, by name."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from kcard.evaluation.metrics import exact_match, f1, substring

__all__ = ["METRICS", "Metric", "accuracy"]

Metric = Literal["substring", "em", "f1", "accuracy"]
WORD = re.compile(r"\w+")


def accuracy(text: str, accepted: Sequence[str]) -> float:
    """1.0 where the reply's first words are an accepted label ("B" of "B. Paris", "Yes" of "Yes, since ..."), else 0.0.

    For choices and classes. Articles count here, unlike in the other measures: "A" is a label.
    """
    said = WORD.findall(text.casefold())
    labels = [WORD.findall(label.casefold()) for label in accepted]
    return float(any(label and said[: len(label)] == label for label in labels))


METRICS: Mapping[Metric, Callable[[str, Sequence[str]], float]] = {
    "substring": lambda text, accepted: float(substring(text, accepted)),
    "em": exact_match,
    "f1": f1,
    "accuracy": accuracy,
}
