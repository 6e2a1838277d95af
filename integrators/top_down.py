"""Top-down integration: the LLM says whether it needs knowledge, and of which card."""

import functools
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kcard.gates.self_ask import KNOWLEDGE_CARD, needs
from kcard.integrators.assembly import Integrator
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.citations import Context, beaten_by_index, without_duplicates
from kcard.integrators.options import AskOptions
from kcard.integrators.pool_views import Selectors
from kcard.interfaces import LLM, Generator, replies
from kcard.llms import client
from kcard.selectors.factuality import judge
from kcard.types import Choice, Example, Passage, Reply, Request, Sampling, Turn, derive_seed

__all__ = [
    "AutoChoice",
    "CardChoice",
    "CardSelection",
    "ExplicitChoice",
    "RelevanceThreshold",
    "SingleDocument",
    "Step",
    "TopDown",
    "mentioned_cards",
]


# No card is asked where none fits the question: what a card far from its subject writes would only mislead.


@dataclass(frozen=True)
class RelevanceThreshold:
    """An integrator that is asked only about questions that one of the cards fits with at least `min_relevance`, a
    probability in [0, 1] (CardRanker.best). Others get nothing but a note."""

    integrator: Integrator
    cards: Sequence[Choice]
    min_relevance: float

    @property
    def selectors(self) -> Selectors:
        return self.integrator.selectors

    def gather(self, questions: Sequence[str]) -> list[Context]:
        """One Context a question."""
        best = {question: self._nearest.best(question) for question in questions}
        fitting = [question for question in questions if best[question][1] >= self.min_relevance]
        gathered = iter(self.integrator.gather(fitting) if fitting else [])
        fit = set(fitting)
        return [
            next(gathered) if question in fit else Context(notes=(self._note(*best[question]),))
            for question in questions
        ]

    @functools.cached_property
    def _nearest(self) -> CardRanker:
        return self.selectors.nearest(self.cards)

    def _note(self, card: Choice, relevance: float) -> str:
        return (
            f"no card was asked: {card.name} comes nearest, with relevance {relevance:.2f}, below "
            f"{self.min_relevance:g} (--min-relevance)"
        )


# The paper's step of top-down: a card writes, its most factual document is kept (Knowledge Card, algorithm 2).


@dataclass(frozen=True)
class SingleDocument:
    """n1 documents are written; they are not pruned. Of what a card's model wrote the best is taken, not drawn.

    What an index looked up is kept whole: its passages are true to the corpus whatever was asked, and which of them
    answers the question the LLM sees best (docs/integrators.md). `min_factuality`: a document that is known to be
    supported less is not kept; 0 is the paper's.
    """

    writer: Generator
    selectors: Selectors
    n1: int = 3
    min_factuality: float = 0.0

    def run(
        self, questions: Sequence[str], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Context]:
        written = client.write(self.writer, questions, cards, self.n1, sampling)
        candidates = [without_duplicates(passages) for passages in written]
        judged = judge(
            [p for group in candidates for p in group],
            self.selectors.own,
            self.selectors.checker,
            with_summary=False,
            independent=self.selectors.independent,
        )
        gathered, start = [], 0
        for group, out in zip(candidates, beaten_by_index(questions, candidates), strict=True):
            gathered.append(self._chosen(judged[start : start + len(group)], out))
            start += len(group)
        return gathered

    def _chosen(self, passages: Sequence[Passage], out: Sequence[bool]) -> Context:
        """The passages, those that the LLM reads marked and in front, looked up ones by their index's score. `out`:
        which passages the index of their card outdoes."""
        standing = [i for i in range(len(passages)) if not out[i]]
        able = [i for i in standing if (score := passages[i].support) is None or score >= self.min_factuality]
        retrieved = [i for i in able if passages[i].source is not None]
        recited = [i for i in able if passages[i].source is None]
        best: dict[str, int] = {}
        for i in sorted(recited, key=lambda i: -_known(passages[i])):
            best.setdefault(passages[i].card, i)
        front = sorted(best.values())
        front += sorted(retrieved, key=lambda i: -_score(passages[i]))
        others = [i for i in range(len(passages)) if i not in front]
        marked = [replace(passages[i], kept=True) for i in front] + [
            replace(passages[i], kept=False) for i in others
        ]
        return Context(tuple(marked))


def _known(passage: Passage) -> float:
    """Unknown support ranks below every known one."""
    return -1.0 if passage.support is None else passage.support


def _score(passage: Passage) -> float:
    return passage.source.score if passage.source else 0.0


# Which cards the LLM asks for: automatic or explicit selection (Knowledge Card, section 2.3).


@dataclass(frozen=True)
class CardSelection:
    """Names of cards, the one wanted most in front, notes for the user, and what the LLM was asked and replied."""

    cards: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    turn: Turn | None = None


class CardChoice(Protocol):
    """`asked`: cards that wrote for this question before. They are not offered again: prompted with the same
    question, a card has nothing new to say. `turns`: see Request."""

    def request(
        self,
        question: str,
        knowledge: Sequence[str] = (),
        used: Collection[str] = (),
        turns: tuple[Turn, ...] = (),
    ) -> Request:
        """What the LLM is asked."""
        ...

    def read_choice(self, request: Request, reply: Reply, used: Collection[str] = ()) -> CardSelection:
        """What its reply means."""
        ...


@dataclass(frozen=True)
class AutoChoice:
    """Asks what kind of information is needed and takes the `most` cards that fit that best; of those after the first
    only such as fit nearly as well (`margin`: see CardRanker)."""

    nearest: CardRanker
    examples: tuple[Example, ...] = ()
    most: int = 1
    margin: float = math.inf

    def request(
        self,
        question: str,
        knowledge: Sequence[str] = (),
        used: Collection[str] = (),
        turns: tuple[Turn, ...] = (),
    ) -> Request:
        del used
        return Request("what", question, tuple(knowledge), self.examples, turns=turns)

    def read_choice(self, request: Request, reply: Reply, used: Collection[str] = ()) -> CardSelection:
        need = reply.text.strip()
        turn = Turn("what", need)
        cards = self.nearest(need or request.question, self.most, used, self.margin)
        nearest = tuple(card.name for card in cards)
        if need:
            return CardSelection(nearest, turn=turn)
        note = "the LLM did not say what it needs; cards were chosen by the question"
        return CardSelection(nearest, (note,), turn)


@dataclass(frozen=True)
class ExplicitChoice:
    """Shows the LLM the cards and takes those that its reply names, at most `most` (None: all).

    Of more cards than `shortlist` it sees those that fit the question best, best first; where there is no `nearest`,
    all. A reply that names none is reported; a card is never picked at random.
    """

    cards: Sequence[Choice]
    examples: tuple[Example, ...] = ()
    most: int | None = 1
    nearest: CardRanker | None = None
    shortlist: int = AskOptions.shortlist

    def request(
        self,
        question: str,
        knowledge: Sequence[str] = (),
        used: Collection[str] = (),
        turns: tuple[Turn, ...] = (),
    ) -> Request:
        offered = self._offered(question, used)
        return Request("choose", question, tuple(knowledge), self.examples, offered, turns)

    def read_choice(self, request: Request, reply: Reply, used: Collection[str] = ()) -> CardSelection:
        offered, notes = request.choices, self._left_out(request, used)
        turn = Turn("choose", reply.text.strip(), choices=offered)
        before = [card for card in self.cards if card.name in used] if used else []
        names = [card.name for card in mentioned_cards(reply.text, [*offered, *before])]
        fresh = tuple(name for name in names if name not in used)
        if not fresh:
            return CardSelection((), (*notes, _refusal(reply.text, names)), turn)
        taken = fresh[: self.most]
        return CardSelection(taken, (*notes, *_shortened(fresh, taken)), turn)

    def _offered(self, question: str, used: Collection[str]) -> tuple[Choice, ...]:
        """The cards that the LLM sees."""
        if self.nearest is None or len(self.cards) - len(used) <= self.shortlist:
            return tuple(card for card in self.cards if card.name not in used)
        return self.nearest(question, self.shortlist, used)

    def _left_out(self, request: Request, used: Collection[str]) -> tuple[str, ...]:
        """What the user should know of the cards that the LLM does not see."""
        count, near = len(self.cards) - len(used), len(request.choices)
        if near == count:
            return ()
        return (f"of {count} cards the LLM chose among the {near} nearest to the question (--shortlist)",)


def _refusal(reply: str, names: Sequence[str]) -> str:
    if names:
        return f"the LLM chose {', '.join(names)} again; each card is used once"
    if not reply.strip():
        return "the LLM's choice of a card is empty; none was used"
    return f"the LLM's choice {reply.strip()[:80]!r} names no card; none was used"


def _shortened(fresh: Sequence[str], taken: Sequence[str]) -> tuple[str, ...]:
    if len(fresh) == len(taken):
        return ()
    return (
        f"the LLM named {', '.join(fresh)}; {', '.join(taken)} was used (--mode hybrid uses several at once)",
    )


def mentioned_cards(reply: str, cards: Sequence[Choice]) -> list[Choice]:
    """The cards that a reply names, by name or by whole description, in the order of their first mention.

    A name inside a longer name or inside another card's description ("moons" in "moons of Saturn") is not a mention.
    """
    spans = [
        (match.start(), match.end(), card)
        for card in cards
        for label in (card.name, card.description)
        for match in re.finditer(rf"(?<![\w-]){re.escape(label)}(?![\w-])", reply, re.IGNORECASE)
    ]
    outer = [
        (start, card)
        for start, end, card in spans
        if not any(a <= start and end <= b and (a, b) != (start, end) for a, b, _ in spans)
    ]
    return list(dict.fromkeys(card for _, card in sorted(outer, key=lambda span: span[0])))


class Step(Protocol):
    """What the chosen cards do in one round: SingleDocument (top-down) or BottomUp (hybrid)."""

    @property
    def selectors(self) -> Selectors: ...

    def run(
        self, questions: Sequence[str], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Context]:
        """One Context a question, from the cards named for it, of which each question has one at least."""
        ...


@dataclass(frozen=True)
class TopDown:
    """In each round the LLM chooses, the chosen cards write, and what is kept is shown to it in the next.

    Whether the first round takes place is the gate's decision, made before. Before each further one the LLM is
    asked again whether it needs more (in `templates` wordings); after the last permitted round, and when every card
    has been asked, it is not. With SingleDocument and a choice of one card this is the paper's top-down; with
    BottomUp and a choice of several it is the hybrid of its future work.

    What is asked and replied grows into one transcript (Context.turns); `opening`: the gate's part of it.
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

    def gather(self, questions: Sequence[str]) -> list[Context]:
        """One Context a question, passages in the order of the rounds."""
        contexts = [Context(turns=self.opening) for _ in questions]
        used: list[tuple[str, ...]] = [() for _ in questions]
        going = list(range(len(questions)))
        for nth in range(self.max_iterations):
            chosen: dict[int, tuple[str, ...]] = {}
            if nth:
                left = [i for i in going if len(used[i]) < self.cards]
                going = self._needing(questions, left, contexts)
            requests = [
                self.choice.request(questions[i], contexts[i].knowledge, used[i], contexts[i].turns)
                for i in going
            ]
            for i, request, reply in zip(going, requests, replies(self.llm, requests), strict=True):
                choice, before = self.choice.read_choice(request, reply, used[i]), contexts[i]
                turns = before.turns + ((choice.turn,) if choice.turn else ())
                contexts[i] = replace(before, notes=before.notes + choice.notes, turns=turns)
                if choice.cards:
                    chosen[i] = choice.cards
                    used[i] += choice.cards
            going = list(chosen)
            self._write(questions, chosen, contexts, nth)
        return contexts

    def _needing(
        self, questions: Sequence[str], numbers: Sequence[int], contexts: list[Context]
    ) -> list[int]:
        """Those of the questions for which the LLM says that it needs more; its replies become turns."""
        requests = [
            Request("need", questions[i], contexts[i].knowledge, self.examples, turns=contexts[i].turns)
            for i in numbers
        ]
        more = [need > 0.5 for need in needs(self.llm, requests, KNOWLEDGE_CARD[: self.templates])]
        for i, needed in zip(numbers, more, strict=True):
            contexts[i] = replace(
                contexts[i], turns=(*contexts[i].turns, Turn("need", "Yes" if needed else "No"))
            )
        return [i for i, needed in zip(numbers, more, strict=True) if needed]

    def _write(
        self,
        questions: Sequence[str],
        chosen: dict[int, tuple[str, ...]],
        contexts: list[Context],
        nth: int,
    ) -> None:
        """One step for all questions that have a choice; what it gathers is added to what there is."""
        seed = derive_seed(self.sampling.seed, "round", nth) if nth else self.sampling.seed
        new = self.step.run(
            [questions[i] for i in chosen], list(chosen.values()), replace(self.sampling, seed=seed)
        )
        for i, gathered in zip(chosen, new, strict=True):
            turns = contexts[i].turns
            if turns:
                turns = (*turns[:-1], replace(turns[-1], documents=len(gathered.knowledge)))
            contexts[i] = replace(contexts[i], passages=contexts[i].passages + gathered.passages, turns=turns)
