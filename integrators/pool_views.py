"""Views of a pool of cards: one card alone, cards chosen by routing, cards as evidence."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcard.errors import UnknownCard
from kcard.gates.base import decide
from kcard.gates.registry import NamedGate
from kcard.integrators.card_ranking import CardRanker, Profiles
from kcard.interfaces import Answerer, Checker, Evidence, Generator, Pruner, Relevance
from kcard.llms import client
from kcard.llms.client import LLMClient, QuestionCosts, add_counts
from kcard.types import Answer, Choice, Passage, Question, Sampling, Usage, checked

if TYPE_CHECKING:
    from kcard.cards.card import Card, CardSet

__all__ = ["CardEvidence", "GateRouter", "Selectors", "SingleCardPool"]


class SingleCardPool:
    """A view of a pool that is restricted to the card `name`. Raises UnknownCard if there is no such card."""

    def __init__(self, writer: Generator, name: str) -> None:
        self._writer = writer
        self._cards = tuple(card for card in writer.cards if card.name == name)
        if not self._cards:
            raise UnknownCard(f"no card {name!r} in this pool")

    @property
    def cards(self) -> Sequence[Choice]:
        return self._cards

    def generate(
        self, questions: Sequence[str], cards: Sequence[str], documents: int, sampling: Sampling
    ) -> list[list[Passage]]:
        return self._writer.generate(questions, cards, documents, sampling)

    def generate_each(
        self,
        questions: Sequence[str],
        cards: Sequence[Sequence[str]],
        documents: int,
        sampling: Sampling,
    ) -> list[list[Passage]]:
        """See Scheduling."""
        return client.generate(self._writer, questions, cards, documents, sampling)


@dataclass(frozen=True)
class GateRouter:
    """An Answerer that routes each question to one of two others.

    Of Adaptive Retrieval's combinations the best was GenRead above the popularity threshold and retrieval below it
    (section 5).

    gate   decides; it asks `llm`, whose costs are added to those of the answer
    below  answers if the gate seeks knowledge, its score being below the threshold
    above  answers otherwise
    """

    gate: NamedGate
    llm: LLMClient
    below: Answerer
    above: Answerer

    def answers(self, questions: Sequence[str | Question]) -> Iterator[Answer]:
        """See Answerer. `Answer.gate` is this gate's decision, `mode` that of the Answerer which answered."""
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
    """Add the gate's costs to an answer."""
    usage = answer.usage
    if usage is not None:
        usage = Usage(
            add_counts(usage.tokens_in, costs.tokens_in),
            add_counts(usage.tokens_out, costs.tokens_out),
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


# The corpus of each card as evidence, opened when the first passage of the card is checked.


class CardEvidence(Mapping[str, Evidence]):
    """The evidence that travels with each card, or that it searches, by card name; cards without any are missing.

    Iterating gives what is open so far, since only that can have `notes`. Evidence on a remote host is opened at once,
    so that the user is told before a question is sent.
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
    """Return the card's passages and their index, or their hashes, or what it searches, as evidence; else None."""
    from kcard.cards.passages import hashes, load_index, passages
    from kcard.selectors.evidence import CorpusEvidence, Hashes, Statements

    if card.manifest.kind == "search":
        from kcard.cards.generators.external import SearchTarget

        return SearchTarget.read(card.folder).open()
    if sources := passages(card.folder):
        corpus = CorpusEvidence(sources, card.name, load_index(card))
        return Statements(corpus) if card.manifest.kind == "graph" else corpus
    places = hashes(card.folder)
    return Hashes(places) if places else None


@dataclass(frozen=True)
class Selectors:
    """The three selectors and the evidence of one run.

    own          the corpus of each card by its name, against which the card's passages are checked; some may be missing
    independent  other evidence, against which the passages of all cards are checked
    profiles     returns the cards' profiles, by which they are ranked; None: they are ranked by description alone
    """

    relevance: Relevance
    pruner: Pruner
    checker: Checker
    own: Mapping[str, Evidence]
    independent: Evidence | None = None
    profiles: Callable[[Sequence[Choice]], Profiles] | None = None

    def nearest(self, cards: Sequence[Choice]) -> CardRanker:
        """Return a ranker of these cards."""
        return CardRanker(self.relevance, cards, self.profiles)
