"""Top-down: the LLM asks for cards, round by round (Knowledge Card, section 2.3 and algorithm 2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kcard.gates.self_ask import need
from kcard.integrators.choice import CardChoice
from kcard.integrators.gathered import Gathered
from kcard.integrators.selectors import Selectors
from kcard.protocols import LLM
from kcard.request import Example, Turn
from kcard.sampling import Sampling, derive_seed

__all__ = ["Step", "TopDown"]


class Step(Protocol):
    """What the chosen cards do in one round: SingleDocument (top-down) or BottomUp (hybrid)."""

    @property
    def selectors(self) -> Selectors: ...

    def run(
        self, questions: Sequence[str], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Gathered]:
        """One Gathered a question, from the cards named for it, of which each question has one at least."""
        ...


@dataclass(frozen=True)
class TopDown:
    """In each round the LLM chooses, the chosen cards write, and what is kept is shown to it in the next.

    Whether the first round takes place is the gate's decision, made before. Before each further one the LLM is
    asked again whether it needs more (in `templates` wordings); after the last permitted round, and when every card
    has been asked, it is not. With SingleDocument and a choice of one card this is the paper's top-down; with
    BottomUp and a choice of several it is the hybrid of its future work.

    What is asked and replied grows into one transcript (Gathered.turns); `opening`: the gate's part of it.
    """

    step: Step
    sampling: Sampling
    llm: LLM
    choice: CardChoice
    cards: int
    examples: tuple[Example, ...] = ()
    max_iterations: int = 1
    templates: int = 1
    opening: tuple[Turn, ...] = ()

    @property
    def selectors(self) -> Selectors:
        return self.step.selectors

    def gather(self, questions: Sequence[str]) -> list[Gathered]:
        """One Gathered a question, passages in the order of the rounds."""
        found = [Gathered(turns=self.opening) for _ in questions]
        asked: list[tuple[str, ...]] = [() for _ in questions]
        going = list(range(len(questions)))
        for nth in range(self.max_iterations):
            chosen: dict[int, tuple[str, ...]] = {}
            for i in going:
                if nth and len(asked[i]) >= self.cards:
                    continue
                if nth:
                    found[i] = self._asked_again(questions[i], found[i])
                    if found[i].turns[-1].reply == "No":
                        continue
                before = found[i]
                choice = self.choice.choose(questions[i], before.knowledge, asked[i], before.turns)
                turns = before.turns + ((choice.turn,) if choice.turn else ())
                found[i] = replace(before, notes=before.notes + choice.notes, turns=turns)
                if choice.cards:
                    chosen[i] = choice.cards
                    asked[i] += choice.cards
            going = list(chosen)
            self._write(questions, chosen, found, nth)
        return found

    def _asked_again(self, question: str, found: Gathered) -> Gathered:
        """With the turn in which the LLM says whether it needs more."""
        needed = need(self.llm, question, found.knowledge, self.examples, self.templates, found.turns)
        return replace(found, turns=(*found.turns, Turn("need", "Yes" if needed > 0.5 else "No")))

    def _write(
        self,
        questions: Sequence[str],
        chosen: dict[int, tuple[str, ...]],
        found: list[Gathered],
        nth: int,
    ) -> None:
        """One step for all questions that have a choice; what it gathers is added to what there is."""
        seed = derive_seed(self.sampling.seed, "round", nth) if nth else self.sampling.seed
        new = self.step.run(
            [questions[i] for i in chosen], list(chosen.values()), replace(self.sampling, seed=seed)
        )
        for i, gathered in zip(chosen, new, strict=True):
            turns = found[i].turns
            if turns:
                turns = (*turns[:-1], replace(turns[-1], documents=len(gathered.knowledge)))
            found[i] = replace(found[i], passages=found[i].passages + gathered.passages, turns=turns)
