"""Generate documents for questions, and score their recall, faithfulness and factuality."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcard.batching import batched
from kcard.errors import CardError, ModelUnavailable, UsageError
from kcard.evaluation.metrics import SearchableText, substring
from kcard.evaluation.questions import ExamQuestion
from kcard.types import Passage, Sampling

if TYPE_CHECKING:
    from kcard.cards.card import Card
    from kcard.cards.generators.retrieval import CardGenerator
    from kcard.cards.models.loader import Loader
    from kcard.evaluation.audit import IndependentEvidence
    from kcard.interfaces import Checker, Evidence

__all__ = [
    "CHANCE",
    "BaseAnswers",
    "Report",
    "Rows",
    "Scorer",
    "StepProgress",
    "ask",
    "ask_base",
    "chance_recall",
    "check_device",
    "generate_documents",
    "judge_answered",
    "load_checker",
    "score_recall",
    "silent",
]


# What an exam tells while it runs; the command line shows it as it likes.


@dataclass(frozen=True)
class StepProgress:
    """`done` of `total` items of the step `what`, such as "asking rivers"."""

    what: str
    done: int
    total: int


Report = Callable[[StepProgress], None]


def silent(progress: StepProgress) -> None:
    """Ignore progress."""


CHANCE = "chance"
# Other questions whose documents stand in for an unrelated one.
OTHERS = 200


def score_recall(questions: Sequence[ExamQuestion], documents: Sequence[Sequence[str]]) -> list[float]:
    """Return for each question 1.0 where one of its documents holds an accepted answer, as whole words, else 0.0."""
    return [
        float(any(substring(text, question.answers) for text in group))
        for question, group in zip(questions, documents, strict=True)
    ]


def chance_recall(questions: Sequence[ExamQuestion], documents: Sequence[Sequence[str]]) -> list[float]:
    """Return for each question the share of other questions' documents that hold its answer too, in [0, 1].

    This is what a card would recall whose documents had nothing to do with the questions: the mean over
    shuffles of them, computed rather than drawn. Of more than OTHERS others, evenly spread ones are taken.
    Neighbours may tell of the same fact, so it is rather too high than too low. Empty for a single question.
    """
    count = len(questions)
    if count < 2:
        return []
    pages = [[SearchableText(text) for text in group] for group in documents]
    taken = min(count - 1, OTHERS)
    steps = [1 + i * (count - 1) // taken for i in range(taken)]
    shares = []
    for at, question in enumerate(questions):
        others = (pages[(at + step) % count] for step in steps)
        shares.append(sum(any(text.holds(question.answers) for text in page) for page in others) / taken)
    return shares


# What a fact checker makes of a card's documents: how far its own corpus, and independent texts, support them.

TEXTS = 3
# Documents that go to the checker at once.
PAIRS_AT_ONCE = 32


def load_checker(
    checker: "Checker | str",
    device: str = "cpu",
    trust_remote_code: bool = False,
    report: Callable[[str], None] | None = None,
) -> "tuple[Checker, str]":
    """Return a checker and its name in records: that of a registered one, or the class of your own."""
    if not isinstance(checker, str):
        return checker, f"{type(checker).__module__}.{type(checker).__qualname__}"
    from kcard.selectors import registry

    return registry.checker(checker, registry.Loading(device, trust_remote_code, report=report)), checker


@dataclass(frozen=True)
class Scorer:
    """A checker, the card's own corpus and independent evidence; either is None where it is not at hand."""

    checker: "Checker"
    own: "Evidence | None"
    independent: "IndependentEvidence | None"
    report: Report

    def faithfulness(self, passages: Sequence[Passage]) -> list[Passage] | None:
        """Return the passages with their faithfulness to the card's own corpus."""
        if self.own is None:
            return None
        return self._judged(passages, self.own, None, "checking against its own corpus")

    def factuality(self, passages: Sequence[Passage]) -> list[Passage] | None:
        """Return the passages with their factuality against the independent evidence; None if it does not cover
        them."""
        from kcard.offline.checker import COVERED

        if self.independent is None:
            return None
        return self._judged(
            passages,
            None,
            self.independent.evidence,
            f"checking against {self.independent.name}",
            COVERED,
        )

    def _judged(
        self,
        passages: Sequence[Passage],
        own: "Evidence | None",
        independent: "Evidence | None",
        what: str,
        floor: float = 0.0,
    ) -> list[Passage]:
        """Judge the passages. Nothing is pruned in an exam, so s = s_fact (Knowledge Card, section 2.2)."""
        from kcard.selectors.factuality import judge

        judged: list[Passage] = []
        self.report(StepProgress(what, 0, len(passages)))
        for block in batched(passages, PAIRS_AT_ONCE):
            texts = {} if own is None else {passage.card: own for passage in block}
            judged += judge(
                block, texts, self.checker, k=TEXTS, with_summary=False, independent=independent, floor=floor
            )
            self.report(StepProgress(what, len(judged), len(passages)))
        return judged


# A card, and the base that it was made from, asked the questions of an exam: greedily, one document a writer.

# Questions that are asked at once.
QUESTIONS_AT_ONCE = 64
# For each question what was written: by the card's model first, where it has one, then by its index.
Rows = list[list[Passage]]


@dataclass(frozen=True)
class BaseAnswers:
    """What the card's recall is compared with. `rows`: what it wrote; None for chance, or where `note` says why."""

    name: str
    rows: Rows | None = None
    note: str = ""

    def part(self, start: int, stop: int | None = None) -> "BaseAnswers":
        """Return the answers to some of the questions."""
        return self if self.rows is None else replace(self, rows=self.rows[start:stop])


def check_device(device: str) -> None:
    """Raise UsageError for a device that torch does not have here."""
    import torch

    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise UsageError(f"device {device!r} is unknown: choose cpu, cuda or cuda:N")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UsageError(f"device {device!r}: there are {torch.cuda.device_count()} GPUs here: choose cpu")


def ask(card: "Card", questions: Sequence[ExamQuestion], seed: int, device: str, report: Report) -> Rows:
    """Have the card write a document for each question, greedily. Raises what loading does."""
    from kcard.cards.models.loader import Loader

    texts = [question.text for question in questions]
    return generate_documents(
        card, texts, 1, Sampling(temperature=0, seed=seed), Loader(device=device), report
    )


def generate_documents(
    card: "Card",
    questions: Sequence[str],
    documents: int,
    sampling: Sampling,
    models: "Loader",
    report: Report,
) -> Rows:
    """Have the card, loaded by `models`, write so many documents for each question."""
    from kcard.cards.generators.retrieval import load_generator

    return _written(
        load_generator(card, models), questions, documents, sampling, f"asking {card.name}", report
    )


def ask_base(
    card: "Card", questions: Sequence[ExamQuestion], seed: int, device: str, report: Report
) -> BaseAnswers:
    """Have the base model write for the same prompts, without what the card learned.

    A card from scratch, or one that only looks up, has none: chance stands in for it. A base that can't be had
    is named with the reason.
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
    return BaseAnswers(name, _written(base, texts, 1, sampling, f"asking {name}", report))


def _written(
    writer: "CardGenerator",
    questions: Sequence[str],
    documents: int,
    sampling: Sampling,
    what: str,
    report: Report,
) -> Rows:
    rows: Rows = []
    report(StepProgress(what, 0, len(questions)))
    for block in batched(questions, QUESTIONS_AT_ONCE):
        rows += writer.generate(block, documents, sampling)
        report(StepProgress(what, len(rows), len(questions)))
    return rows


# Whether a question is answered or admitted as unanswerable, as far as the documents of a card decide it.
#
# The embedded reader judges, so that the figure is the card's and not that of the LLM which happens to answer.

SURE = 0.5


def judge_answered(questions: Sequence[ExamQuestion], rows: Rows, report: Report) -> list[float]:
    """Return for each question 1.0 where the reader finds it answered by one of its documents, else 0.0."""
    from kcard.offline.reader import read

    verdicts: list[float] = []
    for question, row in zip(questions, rows, strict=True):
        texts = [passage.knowledge for passage in row if passage.text.strip()]
        best = max((reading.probability for reading in read(question.text, texts)), default=0.0)
        verdicts.append(float(best >= SURE))
        report(StepProgress("judging the documents", len(verdicts), len(questions)))
    return verdicts
