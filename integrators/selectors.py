"""The three selectors and the evidence of one run, kept together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kcard.integrators.nearest import Nearest
from kcard.integrators.profiles import Profiles
from kcard.protocols import Checker, Evidence, Pruner, Relevance
from kcard.request import Choice

__all__ = ["Selectors"]


@dataclass(frozen=True)
class Selectors:
    """`own` maps a card's name to its corpus, which its passages are checked against; a card may be missing.
    `independent`: other evidence, which the passages of every card are checked against. `profiles`: those of cards, by
    which they are chosen; None: by their descriptions alone."""

    relevance: Relevance
    pruner: Pruner
    checker: Checker
    own: Mapping[str, Evidence]
    independent: Evidence | None = None
    profiles: Callable[[Sequence[Choice]], Profiles] | None = None

    def nearest(self, cards: Sequence[Choice]) -> Nearest:
        """What ranks these cards."""
        return Nearest(self.relevance, cards, self.profiles)
