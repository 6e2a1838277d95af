"""The three selectors and the evidence of one run, kept together."""

from collections.abc import Mapping
from dataclasses import dataclass

from kcard.protocols import Checker, Evidence, Pruner, Relevance

__all__ = ["Selectors"]


@dataclass(frozen=True)
class Selectors:
    """`own` maps a card's name to its corpus, which its passages are checked against; a card may be missing.
    `independent`: other evidence, which the passages of every card are checked against."""

    relevance: Relevance
    pruner: Pruner
    checker: Checker
    own: Mapping[str, Evidence]
    independent: Evidence | None = None
