"""The three selectors and the evidence of one run, kept together."""

from collections.abc import Mapping
from dataclasses import dataclass

from kcard.protocols import Checker, Evidence, Pruner, Relevance

__all__ = ["Selectors"]


@dataclass(frozen=True)
class Selectors:
    """`evidence` maps a card's name to what its passages are checked against; a card may be missing."""

    relevance: Relevance
    pruner: Pruner
    checker: Checker
    evidence: Mapping[str, Evidence]
