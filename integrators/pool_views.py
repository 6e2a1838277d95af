"""Views of a pool of cards: one card alone, cards chosen by routing, cards as evidence.

Of Adaptive Retrieval's combinations this was the best (section 5: GenRead above the popularity threshold, retrieval
below).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcard.errors import UnknownCard
from kcard.gates.base import decide
from kcard.gates.registry import NamedGate
from kcard.integrators.card_ranking import CardRanker, Profiles
from kcard.interfaces import Answerer, Checker, Evidence, Generator, Pruner, Relevance
from kcard.llms import client
from kcard.llms.client import Metered, QuestionCosts
from kcard.types import Answer, Choice, Passage, Question, Sampling, Usage, checked

if TYPE_CHECKING:
    from kcard.cards.card import Card, CardSet

__all__ = ["CardEvidence", "Routed", "Selectors", "SingleCardPool"]


# One of the cards of a pool, as if there were no others.


class SingleCardPool:
    """The card `name` of `writer`. Raises UnknownCard where there is no such card."""

    def __init__(self, writer: Generator, name: str) -> None:
        self._writer = writer
        self._cards = tuple(card for card in writer.cards if card.name == name)
        if not self._cards:
            raise UnknownCard(f"no card {name!r} in this pool")

    @property
    def cards(self) -> Sequence[Choice]:
        return self._cards

    def write(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        return self._writer.write(questions, cards, documents, sampling)

    def write_each(
        self,
        questions: Sequence[str],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """See Scheduling."""
        return client.write(self._writer, questions, cards, documents, sampling)


@dataclass(frozen=True)
class Routed:
    """An Answerer that lets another one answer each question.

    gate   decides; `llm` is what it asks, whose costs are added to those of the answer
    below  answers where the gate seeks knowledge: its score is below the threshold
    above  answers elsewhere
    """

    gate: NamedGate
    llm: Metered
    below: Answerer
    above: Answerer

    def answers(self, questions: Sequence[str | Question]) -> Iterator[Answer]:
        """See Answerer. `Answer.gate` is this gate's decision, `mode` says which way answered."""
        checked_questions = [checked(question) for question in questions]
        for question in checked_questions:
            self.llm.open(question)
        texts = [question.text for question in checked_questions]
        decisions = decide(self.gate.gate, self.gate.name, texts, self.gate.threshold)
        costs = {text: self.llm.close(text) for text in dict.fromkeys(texts)}
        ways = {
            fired: way.answers(
                [q for q, d in zip(checked_questions, decisions, strict=True) if d.fired == fired]
            )
            for fired, way in ((True, self.below), (False, self.above))
        }
        for text, decision in zip(texts, decisions, strict=True):
            answer = _with_costs(next(ways[decision.fired]), costs.pop(text, QuestionCosts()))
            yield replace(answer, gate=decision)


def _with_costs(answer: Answer, costs: QuestionCosts) -> Answer:
    """The answer with what the gate cost besides."""
    usage = answer.usage
    if usage is not None:
        usage = Usage(
            _sum(usage.tokens_in, costs.tokens_in),
            _sum(usage.tokens_out, costs.tokens_out),
            usage.llm_seconds + costs.seconds,
            usage.card_seconds,
        )
    return replace(
        answer,
        calls=answer.calls + costs.calls,
        seconds=answer.seconds + costs.seconds,
        notes=costs.notes + answer.notes,
        usage=usage,
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


# The corpus of each card, as evidence: opened when a passage of the card is there, not before.


class CardEvidence(Mapping[str, Evidence]):
    """What travels with each card, or what it searches, by the card's name; a card without a corpus is missing.

    Going through it gives what is open so far: all that can have something to say (`notes`). What would be searched
    elsewhere is opened at once, so that the user knows before a question is sent.
    """

    def __init__(self, cards: "CardSet") -> None:
        self._cards = cards
        self._open: dict[str, Evidence | None] = {}
        for manifest in cards.manifests:
            if manifest.kind == "search":
                self.get(manifest.name)

    def __getitem__(self, name: str) -> Evidence:
        if name not in self._open:
            self._open[name] = own_evidence(self._cards[name])
        if (evidence := self._open[name]) is None:
            raise KeyError(name)
        return evidence

    def __iter__(self) -> Iterator[str]:
        return (name for name, found in self._open.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def own_evidence(card: "Card") -> Evidence | None:
    """What travels with the card (its passages and their index, or their hashes) or what it searches; else None."""
    from kcard.cards.passages import hashes, index, passages
    from kcard.selectors.evidence import CorpusEvidence, Hashes, Statements

    if card.manifest.kind == "search":
        from kcard.cards.generators.external import Search

        return Search.read(card.folder).open()
    if sources := passages(card.folder):
        corpus = CorpusEvidence(sources, card.name, index(card))
        return Statements(corpus) if card.manifest.kind == "graph" else corpus
    places = hashes(card.folder)
    return Hashes(places) if places else None


# The three selectors and the evidence of one run, kept together.


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

    def nearest(self, cards: Sequence[Choice]) -> CardRanker:
        """What ranks these cards."""
        return CardRanker(self.relevance, cards, self.profiles)
