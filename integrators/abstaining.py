"""No card is asked where none fits the question: what a card far from its subject writes would only mislead."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from kcard.integrators.assembly import Integrator
from kcard.integrators.gathered import Gathered
from kcard.integrators.nearest import Nearest
from kcard.integrators.selectors import Selectors
from kcard.request import Choice

__all__ = ["Abstaining"]


@dataclass(frozen=True)
class Abstaining:
    """An integrator that is asked only about questions that one of the cards fits with at least `min_relevance`, a
    probability in [0, 1] (Nearest.best). Others get nothing but a note."""

    integrator: Integrator
    cards: Sequence[Choice]
    min_relevance: float

    @property
    def selectors(self) -> Selectors:
        return self.integrator.selectors

    def gather(self, questions: Sequence[str]) -> list[Gathered]:
        """One Gathered a question."""
        best = {question: self._nearest.best(question) for question in questions}
        fitting = [question for question in questions if best[question][1] >= self.min_relevance]
        gathered = iter(self.integrator.gather(fitting) if fitting else [])
        kept = set(fitting)
        return [
            next(gathered) if question in kept else Gathered(notes=(self._note(*best[question]),))
            for question in questions
        ]

    @functools.cached_property
    def _nearest(self) -> Nearest:
        return self.selectors.nearest(self.cards)

    def _note(self, card: Choice, relevance: float) -> str:
        return (
            f"no card was asked: {card.name} comes nearest, with relevance {relevance:.2f}, below "
            f"{self.min_relevance:g} (--min-relevance)"
        )
