"""Top-down: the LLM asks for cards, round by round (Knowledge Card, section 2.3 and algorithm 2)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kcard.gates.self_ask import KNOWLEDGE_CARD, needs
from kcard.integrators.choice import CardChoice
from kcard.integrators.gathered import Gathered
from kcard.integrators.selectors import Selectors
from kcard.protocols import LLM
from kcard.replies import replies
from kcard.request import Example, Request, Turn
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
            if nth:
                left = [i for i in going if len(asked[i]) < self.cards]
                going = self._needing(questions, left, found)
            requests = [
                self.choice.request(questions[i], found[i].knowledge, asked[i], found[i].turns) for i in going
            ]
            for i, request, reply in zip(going, requests, replies(self.llm, requests), strict=True):
                choice, before = self.choice.chosen(request, reply, asked[i]), found[i]
                turns = before.turns + ((choice.turn,) if choice.turn else ())
                found[i] = replace(before, notes=before.notes + choice.notes, turns=turns)
                if choice.cards:
                    chosen[i] = choice.cards
                    asked[i] += choice.cards
            going = list(chosen)
            self._write(questions, chosen, found, nth)
        return found

    def _needing(self, questions: Sequence[str], numbers: Sequence[int], found: list[Gathered]) -> list[int]:
        """Those of the questions for which the LLM says that it needs more; its replies become turns."""
        requests = [
            Request("need", questions[i], found[i].knowledge, self.examples, turns=found[i].turns)
            for i in numbers
        ]
        more = [need > 0.5 for need in needs(self.llm, requests, KNOWLEDGE_CARD[: self.templates])]
        for i, needed in zip(numbers, more, strict=True):
            found[i] = replace(found[i], turns=(*found[i].turns, Turn("need", "Yes" if needed else "No")))
        return [i for i, needed in zip(numbers, more, strict=True) if needed]

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
