"""Top-down integration: cards are chosen step by step, and by the LLM if the user wants so."""

import functools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Protocol

from kcard.gates.self_ask import KNOWLEDGE_CARD, needs
from kcard.integrators.assembly import Integrator, with_documents
from kcard.integrators.card_ranking import CardRanker
from kcard.integrators.disagreements import BEATEN_BY_INDEX, beaten_by_index, without_duplicates
from kcard.integrators.options import AskOptions
from kcard.integrators.pool_views import Selectors, generate
from kcard.interfaces import LLM, Generator, replies
from kcard.selectors.factuality import judge
from kcard.text import language_of_question
from kcard.types import (
    Choice,
    Context,
    Example,
    Passage,
    Question,
    Reply,
    Request,
    Sampling,
    Turn,
    derive_seed,
)


@dataclass(frozen=True)
class RelevanceThreshold:
    """Passes on only questions that one of the cards fits with at least `min_relevance`, a probability in [0, 1]
    (CardRanker.best), and those in other languages than English, of which the ranker knows too little. The others get
    no passages, and a note: what a card far from the subject generates would only mislead."""

    integrator: Integrator
    cards: Sequence[Choice]
    min_relevance: float

    @property
    def selectors(self) -> Selectors:
        return self.integrator.selectors

    def gather(self, questions: Sequence[Question]) -> list[Context]:
        """Return one Context per question."""
        contexts: dict[Question, Context] = {}
        fitting = []
        for question in questions:
            card, relevance = self._ranker.best(question.text)
            is_foreign = language_of_question(question.text) not in (None, "en")
            if relevance >= self.min_relevance or is_foreign:
                fitting.append(question)
                continue
            note = (
                f"no card used: {card.name} is nearest, but its relevance {relevance:.2g} is below "
                f"{self.min_relevance:g} (--min-relevance)"
            )
            contexts[question] = Context(notes=(note,))
        if fitting:
            contexts.update(zip(fitting, self.integrator.gather(fitting), strict=True))
        return [contexts[question] for question in questions]

    @functools.cached_property
    def _ranker(self) -> CardRanker:
        return self.selectors.nearest(self.cards)


@dataclass(frozen=True)
class SingleDocument:
    """The paper's top-down step (Knowledge Card, algorithm 2), with `only_best`; else also the index's passages.

    Each card generates n1 documents, which are not pruned. Of those of a card's model the best one is kept; nothing
    is sampled.

    All passages that a card's index retrieved are kept: they are true to the corpus whatever the question, and the LLM
    sees best which of them answers it (docs/integrators.md).

    min_factuality  documents with a known lower support are dropped; the paper has 0
    compare_index   whether a model's documents are dropped if those of its card's index fit better (beaten_by_index)
    only_best       keep one document of all, the paper's; of equally supported ones the first
    """

    pool: Generator
    selectors: Selectors
    n1: int = AskOptions.n1
    min_factuality: float = AskOptions.min_factuality
    compare_index: bool = AskOptions.compare_index
    only_best: bool = AskOptions.single_document

    def run(
        self, questions: Sequence[Question], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Context]:
        written = generate(self.pool, questions, cards, self.n1, sampling)
        candidates = [without_duplicates(passages) for passages in written]
        judged = judge(
            list(chain.from_iterable(candidates)),
            self.selectors.own,
            self.selectors.checker,
            with_summary=False,
            independent=self.selectors.independent,
        )
        beaten = [[False] * len(group) for group in candidates]
        if self.compare_index:
            beaten = beaten_by_index([question.text for question in questions], candidates)
        scored = iter(judged)
        contexts = []
        for is_beaten in beaten:
            passages = list(islice(scored, len(is_beaten)))
            contexts.append(self._mark_kept(passages, is_beaten))
        return contexts

    def _mark_kept(self, passages: Sequence[Passage], beaten: Sequence[bool]) -> Context:
        """Put the passages that the LLM reads in front, marked as kept. `beaten`: see beaten_by_index."""
        able: list[int] = []
        support: dict[int, float] = {}
        for i, passage in enumerate(passages):
            support[i] = -1.0  # unknown support ranks below any known one
            is_low = False
            if passage.support is not None:
                support[i] = passage.support
                is_low = passage.support < self.min_factuality
            if not beaten[i] and not is_low:
                able.append(i)
        ranked = sorted(able, key=lambda i: -support[i])
        if self.only_best:
            front = ranked[:1]
        else:
            # Of each card's model the best supported passage, of the indexes all passages, by their retrieval score.
            best: dict[str, int] = {}
            for i in ranked:
                if passages[i].source is None:
                    best.setdefault(passages[i].card, i)
            scores: dict[int, float] = {}
            for i in able:
                source = passages[i].source
                if source is not None:
                    scores[i] = source.score
            front = sorted(best.values()) + sorted(scores, key=lambda i: -scores[i])
        marked = [replace(passages[i], kept=True) for i in front]
        for i, passage in enumerate(passages):
            if i in front:
                continue
            if beaten[i]:
                reason = BEATEN_BY_INDEX
            elif i not in able:
                reason = f"its support is below {self.min_factuality:g} (--min-factuality)"
            elif self.only_best:
                reason = "another passage is better supported (--single-document)"
            else:
                reason = "another passage of the card's model is better supported"
            marked.append(replace(passage, kept=False, reason=reason))
        return Context(tuple(marked))


@dataclass(frozen=True)
class CardSelection:
    """Names of the chosen cards, best first, notes for the user, and the LLM's turn in the transcript."""

    cards: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    turn: Turn | None = None


@dataclass(frozen=True)
class Need:
    """What a choice of cards starts from: the question, what the LLM has read, the transcript so far, and the cards
    that generated for this question before and are not offered again."""

    question: Question
    knowledge: Sequence[str] = ()
    turns: tuple[Turn, ...] = ()
    used: Collection[str] = ()


class CardChoice(ABC):
    """Chooses the cards that generate in a round: those nearest to the question, or those that the LLM asks for, by
    automatic or explicit selection (Knowledge Card, section 2.3)."""

    @abstractmethod
    def select(self, llm: LLM, needs: Sequence[Need]) -> list[CardSelection]:
        """Return the cards for each need."""


@dataclass(frozen=True)
class NearestChoice(CardChoice):
    """Takes the `most` cards that fit the question best; after the first only those that fit nearly as well (`margin`:
    see CardRanker). The LLM is not asked: small ones describe their need worse than the question does."""

    ranker: CardRanker
    most: int = 1
    margin: float = math.inf

    def select(self, llm: LLM, needs: Sequence[Need]) -> list[CardSelection]:
        del llm
        selections = []
        for need in needs:
            cards = self.ranker(need.question.text, self.most, need.used, self.margin)
            selections.append(CardSelection(tuple(card.name for card in cards)))
        return selections


class LLMChoice(CardChoice):
    """Lets the LLM choose."""

    def select(self, llm: LLM, needs: Sequence[Need]) -> list[CardSelection]:
        requests = [self.request(need) for need in needs]
        selections = []
        for need, request, reply in zip(needs, requests, replies(llm, requests), strict=True):
            selections.append(self.read_choice(request, reply, need.used))
        return selections

    @abstractmethod
    def request(self, need: Need) -> Request:
        """Return the request that makes the LLM choose."""

    @abstractmethod
    def read_choice(self, request: Request, reply: Reply, used: Collection[str] = ()) -> CardSelection:
        """Return the cards that the LLM's reply chooses."""


@dataclass(frozen=True)
class AutoChoice(LLMChoice):
    """Asks what kind of information is needed and takes the `most` cards that match it best; after the first only
    those that match nearly as well (`margin`: see CardRanker)."""

    ranker: CardRanker
    examples: tuple[Example, ...] = ()
    most: int = 1
    margin: float = math.inf

    def request(self, need: Need) -> Request:
        return need.question.request("what", need.knowledge, self.examples, turns=need.turns)

    def read_choice(self, request: Request, reply: Reply, used: Collection[str] = ()) -> CardSelection:
        needed = reply.text.strip()
        turn = Turn("what", needed)
        cards = self.ranker(needed or request.question, self.most, used, self.margin)
        nearest = tuple(card.name for card in cards)
        if needed:
            return CardSelection(nearest, turn=turn)
        note = "the LLM did not say what it needs; the cards were chosen by the question"
        return CardSelection(nearest, (note,), turn)


@dataclass(frozen=True)
class ExplicitChoice(LLMChoice):
    """Shows the LLM the cards and takes those that its reply names, at most `most` (None: all).

    If there are more cards than `shortlist`, the LLM sees those that fit the question best, best first; without a
    `ranker` it sees all. A reply that names no card is reported; a card is never picked at random.
    """

    cards: Sequence[Choice]
    examples: tuple[Example, ...] = ()
    most: int | None = 1
    ranker: CardRanker | None = None
    shortlist: int = AskOptions.shortlist

    def request(self, need: Need) -> Request:
        if self.ranker is None or len(self.cards) - len(need.used) <= self.shortlist:
            offered = tuple(card for card in self.cards if card.name not in need.used)
        else:
            offered = self.ranker(need.question.text, self.shortlist, need.used)
        return need.question.request("choose", need.knowledge, self.examples, offered, turns=need.turns)

    def read_choice(self, request: Request, reply: Reply, used: Collection[str] = ()) -> CardSelection:
        offered, text = request.choices, reply.text.strip()
        turn = Turn("choose", text, choices=offered)
        count, notes = len(self.cards) - len(used), []
        if len(offered) != count:
            notes.append(
                f"the LLM chose from the {len(offered)} of {count} cards nearest to the question (--shortlist)"
            )
        before = [card for card in self.cards if card.name in used]
        names = [card.name for card in mentioned_cards(reply.text, [*offered, *before])]
        fresh = tuple(name for name in names if name not in used)
        selected = fresh[: self.most]
        if len(selected) < len(fresh):
            notes.append(
                f"the LLM named {', '.join(fresh)}; only {', '.join(selected)} was used (--mode hybrid uses several)"
            )
        elif not fresh and names:
            notes.append(f"the LLM chose {', '.join(names)} again; each card is used once")
        elif not fresh and not text:
            notes.append("the LLM's choice of a card is empty; none was used")
        elif not fresh:
            notes.append(f"the LLM's choice {text[:80]!r} names no card; none was used")
        return CardSelection(selected, tuple(notes), turn)


def mentioned_cards(reply: str, cards: Sequence[Choice]) -> list[Choice]:
    """Return the cards that a reply mentions, by name or by whole description, in order of their first mention.

    A name inside a longer name or inside another card's description ("moons" in "moons of Saturn") is not a mention.
    """
    mentions: list[tuple[int, int, Choice]] = []
    for card in cards:
        for label in (card.name, card.description):
            pattern = rf"(?<![\w-]){re.escape(label)}(?![\w-])"
            for match in re.finditer(pattern, reply, re.IGNORECASE):
                mentions.append((*match.span(), card))
    # The longer first, so that what lies within one of them is known before it comes.
    mentions.sort(key=lambda mention: mention[0] - mention[1])
    outer: list[tuple[int, int, Choice]] = []
    for start, end, card in mentions:
        is_inside = False
        for outer_start, outer_end, _ in outer:
            is_longer = (outer_start, outer_end) != (start, end)
            if is_longer and outer_start <= start and end <= outer_end:
                is_inside = True
        if not is_inside:
            outer.append((start, end, card))
    outer.sort(key=lambda mention: mention[0])
    return list(dict.fromkeys(card for *_, card in outer))


class Step(Protocol):
    """What the chosen cards do in one round: SingleDocument (top-down) or BottomUp (hybrid)."""

    @property
    def selectors(self) -> Selectors: ...

    def run(
        self, questions: Sequence[Question], cards: Sequence[Sequence[str]], sampling: Sampling
    ) -> list[Context]:
        """Return one Context per question, from the cards named for it; each question has at least one."""
        ...


@dataclass(frozen=True)
class TopDown:
    """In each round the LLM chooses cards, these generate, and the LLM sees the kept passages in the next round.

    The gate has decided beforehand whether there is a first round. Before each further round the LLM is asked again
    whether it needs more (in `templates` wordings), unless every card has been used. With SingleDocument and a choice
    of one card this is the paper's top-down; with BottomUp and a choice of several it is the hybrid that the paper
    proposes as future work.

    reuse_cards  offer each card in every round, as the paper does; else each card is used once: given the same
                 question, it seldom has anything new to say

    Requests and replies add up to one transcript (Context.turns), which starts with the gate's `opening`.
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
    reuse_cards: bool = AskOptions.reuse_cards

    @property
    def selectors(self) -> Selectors:
        return self.step.selectors

    def gather(self, questions: Sequence[Question]) -> list[Context]:
        """Return one Context per question, with the passages in the order of the rounds."""
        contexts = [Context(turns=self.opening) for _ in questions]
        used: list[tuple[str, ...]] = [() for _ in questions]
        active = list(range(len(questions)))
        for nth in range(self.max_iterations):
            chosen: dict[int, tuple[str, ...]] = {}
            # After the first round, the LLM says for which questions it needs more; its replies become turns.
            if nth:
                left = [i for i in active if len(used[i]) < self.cards]
                requests = []
                for i in left:
                    context = contexts[i]
                    requests.append(
                        questions[i].request("need", context.knowledge, self.examples, turns=context.turns)
                    )
                active = []
                probabilities = needs(self.llm, requests, KNOWLEDGE_CARD[: self.templates])
                for i, probability in zip(left, probabilities, strict=True):
                    turn = Turn("need", "No")
                    if probability > 0.5:
                        active.append(i)
                        turn = Turn("need", "Yes")
                    contexts[i] = replace(contexts[i], turns=(*contexts[i].turns, turn))
            # Cards are chosen.
            lacking = [Need(questions[i], contexts[i].knowledge, contexts[i].turns, used[i]) for i in active]
            for i, choice in zip(active, self.choice.select(self.llm, lacking), strict=True):
                before = contexts[i]
                turns = before.turns
                if choice.turn:
                    turns = (*turns, choice.turn)
                contexts[i] = replace(before, notes=before.notes + choice.notes, turns=turns)
                if choice.cards:
                    chosen[i] = choice.cards
                    if not self.reuse_cards:
                        used[i] += choice.cards
            active = list(chosen)
            # The chosen cards generate; what they add goes to the end of the context.
            sampling = self.sampling
            if nth:
                sampling = replace(sampling, seed=derive_seed(sampling.seed, "round", nth))
            added = self.step.run([questions[i] for i in chosen], list(chosen.values()), sampling)
            for i, more_context in zip(chosen, added, strict=True):
                before = contexts[i]
                turns = with_documents(before.turns, len(more_context.knowledge))
                contexts[i] = replace(before, passages=before.passages + more_context.passages, turns=turns)
        return contexts
