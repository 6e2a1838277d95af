"""What stands between a pool of cards and those who use it: times, routing by a gate, cards as evidence, selectors."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcard.errors import KcardError
from kcard.gates.registry import NamedGate
from kcard.integrators.card_ranking import CardRanker, DescriptionRanker, Profiles
from kcard.integrators.options import AskOptions, RankBy
from kcard.interfaces import Answerer, Checker, Evidence, Generator, Pruner, Relevance
from kcard.questions import all_checked, run_step
from kcard.types import Answer, Choice, Decision, Passage, Question, Sampling

if TYPE_CHECKING:
    from kcard.cards.card import Card, CardSet


def generate(
    pool: Generator,
    questions: Sequence[Question],
    cards: Sequence[Sequence[str]],
    documents: int,
    sampling: Sampling,
) -> list[list[Passage]]:
    """Let cards generate for each question (see Generator), and add an equal share of the time to each trace."""
    started = time.perf_counter()
    passages = pool.generate(questions, cards, documents, sampling)
    share = (time.perf_counter() - started) / max(len(questions), 1)
    for question in questions:
        question.trace.card_seconds += share
    return passages


@dataclass(frozen=True)
class GateRouter(Answerer):
    """Routes each question to one of two others.

    Of Adaptive Retrieval's combinations the best was GenRead above the popularity threshold and retrieval below it
    (section 5).

    gate   decides
    below  answers if the gate seeks knowledge, its score being below the threshold
    above  answers otherwise
    """

    gate: NamedGate
    below: Answerer
    above: Answerer

    def outcomes(self, questions: Sequence[str | Question]) -> Iterator[Answer | KcardError]:
        """See Answerer. `Answer.gate` is this gate's decision, `mode` that of the Answerer which answered."""
        pending = all_checked(questions)
        decisions, failures = run_step(self._decide, list(dict.fromkeys(pending)))
        below, above = [], []
        for question in pending:
            if question in failures:
                continue
            if decisions[question].fired:
                below.append(question)
            else:
                above.append(question)
        outcomes = {True: self.below.outcomes(below), False: self.above.outcomes(above)}
        for question in pending:
            if question in failures:
                yield failures[question]
                continue
            decision = decisions[question]
            outcome = next(outcomes[decision.fired])
            if isinstance(outcome, Answer):
                outcome = replace(outcome, gate=decision)
            yield outcome

    def _decide(self, questions: Sequence[Question]) -> list[Decision]:
        started = time.perf_counter()
        for question in questions:
            question.trace.begin()
        decisions = self.gate.gate.decide(questions, self.gate.name)
        for question in questions:
            question.trace.seconds += (time.perf_counter() - started) / len(questions)
        return decisions


class CardEvidence(Mapping[str, Evidence]):
    """The evidence that travels with each card, or that it searches, by card name; cards without any are missing.

    It is opened when the first passage of the card is checked. Iterating gives what is open so far, since only that
    can have `notes`. Evidence on a remote host is opened at once, so that the user is told before a question is sent.
    """

    def __init__(self, cards: "CardSet") -> None:
        self._cards = cards
        self._open: dict[str, Evidence | None] = {}
        for name, manifest in cards.manifests.items():
            if manifest.kind == "search":
                self.get(name)

    def __getitem__(self, name: str) -> Evidence:
        if name not in self._open:
            self._open[name] = own_evidence(self._cards[name])
        evidence = self._open[name]
        if evidence is None:
            raise KeyError(name)
        return evidence

    def __iter__(self) -> Iterator[str]:
        for name, evidence in self._open.items():
            if evidence is not None:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)


def own_evidence(card: "Card") -> Evidence | None:
    """Return the card's passages and their index, or their hashes, or what it searches, as evidence; else None."""
    from kcard.cards.passages import hashes, load_index, passages
    from kcard.selectors.evidence import CorpusEvidence, Hashes, Statements

    if card.manifest.kind == "search":
        from kcard.cards.generators.external import SearchTarget

        return SearchTarget.read(card.folder).open()
    sources = passages(card.folder)
    if sources:
        corpus = CorpusEvidence(sources, card.name, load_index(card))
        if card.manifest.kind == "graph":
            return Statements(corpus)
        return corpus
    places = hashes(card.folder)
    if not places:
        return None
    return Hashes(places)


@dataclass(frozen=True)
class Selectors:
    """The three selectors and the evidence of one run.

    own          the corpus of each card by its name, against which the card's passages are checked; some may be missing
    independent  other evidence, against which the passages of all cards are checked
    profiles     returns the cards' profiles, by which they are ranked; None: only their descriptions are known
    rank_by      whether cards are ranked by profile, or by the relevance selector's scores of descriptions alone
    """

    relevance: Relevance
    pruner: Pruner
    checker: Checker
    own: Mapping[str, Evidence]
    independent: Evidence | None = None
    profiles: Callable[[Sequence[Choice]], Profiles] | None = None
    rank_by: RankBy = AskOptions.rank_by

    def nearest(self, cards: Sequence[Choice]) -> CardRanker:
        """Return a ranker of these cards."""
        if self.rank_by == "description":
            return DescriptionRanker(self.relevance, cards)
        return CardRanker(self.relevance, cards, self.profiles)
