"""Generate a card's documents for questions, and score their recall, faithfulness and factuality."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcard.batching import batched
from kcard.errors import CardError, ModelUnavailable
from kcard.evaluation.metrics import SearchableText, substring
from kcard.evaluation.questions import ExamQuestion
from kcard.events import Event, OnEvent, ignore
from kcard.types import Passage, Sampling

if TYPE_CHECKING:
    from kcard.cards.card import Card
    from kcard.evaluation.independent_evidence import IndependentEvidence
    from kcard.interfaces import CardGenerator, Checker, Evidence

CHANCE = "chance"
MAX_CHANCE_SAMPLE = 200  # other questions whose documents each question is compared with


# The documents for each question: the model's first, if the card has a model, then the index's.
Rows = Sequence[Sequence[Passage]]


def score_recall(questions: Sequence[ExamQuestion], rows: Rows) -> list[float]:
    """Return 1.0 for each question with an accepted answer in one of its documents, as whole words, else 0.0."""
    hits = []
    for question, row in zip(questions, rows, strict=True):
        hits.append(float(any(substring(passage.text, question.answers) for passage in row)))
    return hits


def chance_recall(questions: Sequence[ExamQuestion], rows: Rows) -> list[float]:
    """Return, for each question, the share of the other questions whose documents contain its answer, in [0, 1].

    This is the expected recall if documents are shuffled among the questions, computed without drawing shuffles. Of
    more than MAX_CHANCE_SAMPLE other questions, that many are used, evenly spread. Documents for other questions may
    state the same fact, so it is an upper estimate. Returns an empty list for a single question.
    """
    count = len(questions)
    if count < 2:
        return []
    searchable = [[SearchableText(passage.text) for passage in row] for row in rows]
    sample = min(count - 1, MAX_CHANCE_SAMPLE)
    steps = [1 + i * (count - 1) // sample for i in range(sample)]
    shares = []
    for at, question in enumerate(questions):
        hits = 0
        for step in steps:
            hits += any(text.holds(question.answers) for text in searchable[(at + step) % count])
        shares.append(hits / sample)
    return shares


# Scores of a card's documents by a fact checker: how far the card's own corpus, and independent texts, support them.

MAX_EVIDENCE_TEXTS = 3  # texts of the evidence that a document is checked against
CHECKER_BATCH = 32  # documents


def load_checker(
    checker: "Checker | str",
    device: str = "cpu",
    trust_remote_code: bool = False,
    on_event: OnEvent = ignore,
) -> "tuple[Checker, str]":
    """Return a checker and its name in records: the registered name, or the class of a checker object."""
    if not isinstance(checker, str):
        return checker, f"{type(checker).__module__}.{type(checker).__qualname__}"
    from kcard.selectors.registry import Loading, make

    return make("checker", checker, Loading(device, trust_remote_code, on_event=on_event)), checker


@dataclass(frozen=True)
class Scorer:
    """A checker with the evidence it scores against: the card's own corpus and independent texts, or None."""

    checker: "Checker"
    own: "Evidence | None"
    independent: "IndependentEvidence | None"
    on_event: OnEvent

    def faithfulness(self, passages: Sequence[Passage]) -> list[Passage] | None:
        """Return the passages with their faithfulness to the card's own corpus; None without its text."""
        if self.own is None:
            return None
        return self._judged(passages, "checking against its own corpus", own=self.own)

    def factuality(self, passages: Sequence[Passage]) -> list[Passage] | None:
        """Return the passages with their factuality against the independent evidence; None without evidence.

        A passage that the evidence does not cover has no score.
        """
        from kcard.selectors.minilm_checker import MIN_COVERAGE

        if self.independent is None:
            return None
        what = f"checking against {self.independent.name}"
        return self._judged(passages, what, independent=self.independent.evidence, floor=MIN_COVERAGE)

    def _judged(
        self,
        passages: Sequence[Passage],
        what: str,
        own: "Evidence | None" = None,
        independent: "Evidence | None" = None,
        floor: float = 0.0,
    ) -> list[Passage]:
        """Score the passages in batches. Exams do not prune, so s = s_fact (Knowledge Card, section 2.2)."""
        from kcard.selectors.factuality import judge

        judged: list[Passage] = []
        self.on_event(Event(what, done=0, total=len(passages)))
        for block in batched(passages, CHECKER_BATCH):
            texts: dict[str, Evidence] = {}
            if own is not None:
                texts = {passage.card: own for passage in block}
            judged += judge(
                block,
                texts,
                self.checker,
                k=MAX_EVIDENCE_TEXTS,
                with_summary=False,
                independent=independent,
                floor=floor,
            )
            self.on_event(Event(what, done=len(judged), total=len(passages)))
        return judged


# Documents that a card, and the base that it was trained from, generate for the questions of an exam.

GENERATION_BATCH = 64  # questions


@dataclass(frozen=True)
class BaseAnswers:
    """What the card's recall is compared with.

    rows  the base's documents; None for chance, or if the base could not be loaded
    note  why it could not be loaded
    """

    name: str
    rows: Rows | None = None
    note: str = ""

    def part(self, start: int, stop: int | None = None) -> "BaseAnswers":
        """Return the answers to some of the questions."""
        if self.rows is None:
            return self
        return replace(self, rows=self.rows[start:stop])


def ask_card(
    card: "Card", questions: Sequence[ExamQuestion], seed: int, device: str, on_event: OnEvent
) -> Rows:
    """Generate the card's documents for each question at temperature 0. Raises what loading the card raises."""
    from kcard.cards.generators.retrieval import load_generator
    from kcard.cards.models.loader import Loader

    generator = load_generator(card, Loader(device=device))
    texts, sampling = [question.text for question in questions], Sampling(temperature=0, seed=seed)
    return generate_documents(generator, texts, 1, sampling, f"asking {card.name}", on_event)


def ask_base(
    card: "Card", questions: Sequence[ExamQuestion], seed: int, device: str, on_event: OnEvent
) -> BaseAnswers:
    """Generate the documents of the card's base model for the same prompts.

    Cards trained from scratch and cards without a model are compared with chance instead. If the base can't be loaded,
    the result has a note and no rows.
    """
    name = card.manifest.base.name
    if not name:
        return BaseAnswers(CHANCE)
    from kcard.cards.models.loader import Loader
    from kcard.cards.models.transformers_backend import CausalCard

    try:
        base = CausalCard(card, Loader(device=device), bare=True)
    except (ModelUnavailable, CardError) as error:
        return BaseAnswers(name, note=str(error))
    texts, sampling = [question.text for question in questions], Sampling(temperature=0, seed=seed)
    return BaseAnswers(name, generate_documents(base, texts, 1, sampling, f"asking {name}", on_event))


def generate_documents(
    generator: "CardGenerator",
    questions: Sequence[str],
    documents: int,
    sampling: Sampling,
    what: str,
    on_event: OnEvent,
) -> Rows:
    """Generate `documents` documents for each question; `on_event` is called with their number (kind `what`)."""
    rows: list[list[Passage]] = []
    on_event(Event(what, done=0, total=len(questions)))
    for block in batched(questions, GENERATION_BATCH):
        rows += generator.generate(block, documents, sampling)
        on_event(Event(what, done=len(rows), total=len(questions)))
    return rows


# Whether a card's documents answer a question. The embedded reader decides, so that the figure depends on the card
# alone and not on an LLM.

MIN_ANSWER_PROBABILITY = 0.5  # that a document answers the question


def judge_answered(questions: Sequence[ExamQuestion], rows: Rows, on_event: OnEvent) -> list[float]:
    """Return 1.0 for each question that the reader finds answered by one of its documents, else 0.0."""
    from kcard.embedded.reader import read

    verdicts: list[float] = []
    for question, row in zip(questions, rows, strict=True):
        texts = [passage.knowledge for passage in row if passage.text.strip()]
        best = max((reading.probability for reading in read(question.text, texts)), default=0.0)
        verdicts.append(float(best >= MIN_ANSWER_PROBABILITY))
        on_event(Event("judging the documents", done=len(verdicts), total=len(questions)))
    return verdicts
