"""Records of exams and audits: values, their JSON files, and the results in model cards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kcard.cards.model_card import ExamResult
from kcard.cards.model_card import with_results as write_results
from kcard.errors import CardError
from kcard.evaluation.metrics import interval
from kcard.evaluation.recall import CHANCE
from kcard.hub.values import is_independent
from kcard.io import build, canonical, parse
from kcard.types import Source

EXAM = "exam.json"
EXAM_FORMAT = 2
DIGITS = 4
T = TypeVar("T")


def rounded(score: float | None) -> float | None:
    return None if score is None else round(score, DIGITS)


@dataclass(frozen=True)
class Mean:
    """A mean with its 95 % interval (metrics.interval); shares and scores lie in [0, 1], differences in [-1, 1]."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], seed: int = 0, *, paired: bool = False) -> "Mean | None":
        """Return the mean of the values, None for no values. `paired`: the values are paired differences."""
        if not values:
            return None
        low, high = interval(values, seed, paired=paired)
        return cls(round(sum(values) / len(values), DIGITS), round(low, DIGITS), round(high, DIGITS))

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Distribution:
    """Checker scores in [0, 1], one for each passage; the evidence does not cover `unknown` further passages."""

    scores: tuple[float, ...]
    mean: Mean | None
    unknown: int = 0

    @classmethod
    def of(cls, scores: Sequence[float | None], seed: int = 0) -> "Distribution":
        judged = [score for score in scores if score is not None]
        shown = tuple(round(score, DIGITS) for score in judged)
        return cls(shown, Mean.of(judged, seed), len(scores) - len(judged))

    @property
    def coverage(self) -> float | None:
        """Share of the passages that have a score, in [0, 1]; None without passages."""
        passages = len(self.scores) + self.unknown
        return round(len(self.scores) / passages, DIGITS) if passages else None


def value_of(mean: Mean | None) -> float | None:
    """Return a mean without its interval; None for None."""
    if mean is None:
        return None
    return mean.mean


def mean_of(distribution: Distribution | None) -> float | None:
    """Return the mean of a distribution; None if it was not measured or the evidence covers no passage."""
    if distribution is None:
        return None
    return value_of(distribution.mean)


@dataclass(frozen=True)
class Judged:
    """A document from an exam, with its scores. `evidence`: the text that decided the ranking score."""

    question: str
    answer: str
    text: str
    recalled: bool
    faithfulness: float | None = None
    factuality: float | None = None
    evidence: Source | None = None


@dataclass(frozen=True)
class ExamRun:
    """The results of an exam on one set of questions.

    asked             the kind of questions (natural questions or held-out forms), or the name of a file
    sha256            of the corpus or file that the questions come from
    questions_sha256  of the questions with their accepted answers
    recall            share of questions whose answer occurs in the card's documents, generated at temperature 0: one by
                      its model and one by its index, as far as it has them
    base              recall of the exam's base; None if it could not be loaded
    lift              recall minus base, paired by question
    model, index      recall of the model alone and of the index alone, for a card of kind `both`
    answered          share of the questions that the embedded reader finds answered by the documents
    absent, admitted  number of further, unanswerable questions, and the share of them that it finds unanswered
    faithfulness      scores against the card's own corpus; None without its text
    factuality        scores against independent evidence; None without evidence. The two are never combined
    """

    asked: str
    sha256: str
    questions: int
    questions_sha256: str
    recall: Mean | None
    lift: Mean | None = None
    base: Mean | None = None
    model: Mean | None = None
    index: Mean | None = None
    faithfulness: Distribution | None = None
    factuality: Distribution | None = None
    answered: Mean | None = None
    absent: int = 0
    admitted: Mean | None = None


@dataclass(frozen=True)
class Exam:
    """An exam: what a card knows about its own corpus, and about the questions of a file.

    kcard            the version of kcard that made the exam
    seed, limit      the sample of questions, and their maximum number
    own              results on the card's own corpus; None without its text
    given            results on a file of questions; None without a file
    base             what recall is compared with: a base model's name, or `chance`
    base_note        why the base could not be loaded; "" if it was
    checker          the checker's name; checker_sha256: of its weights, None if it declares none
    evidence         name of the independent evidence, with its sha256; `evidence_shared` of its texts are also in the
                     card's corpus; `evidence_overlap` in [0, 1]: from 0.1 on the evidence is not independent
    ranked_by        the score by which `best` and `worst` of `own` were chosen
    """

    card: str
    kcard: str
    own: ExamRun | None
    given: ExamRun | None = None
    base: str = ""
    base_note: str = ""
    checker: str = ""
    checker_sha256: str | None = None
    evidence: str | None = None
    evidence_sha256: str | None = None
    evidence_shared: int = 0
    evidence_overlap: float = 0.0
    seed: int = 0
    limit: int = 0
    ranked_by: str = "faithfulness"
    best: tuple[Judged, ...] = ()
    worst: tuple[Judged, ...] = ()
    format: int = EXAM_FORMAT

    @property
    def recall(self) -> Mean | None:
        """Recall on the card's own corpus."""
        if self.own is None:
            return None
        return self.own.recall

    @property
    def lift(self) -> Mean | None:
        """Lift on the card's own corpus."""
        if self.own is None:
            return None
        return self.own.lift

    @property
    def faithfulness(self) -> Distribution | None:
        """Faithfulness of the documents about the card's own corpus."""
        if self.own is None:
            return None
        return self.own.faithfulness

    @property
    def factuality(self) -> Distribution | None:
        """Factuality of the documents about the card's own corpus."""
        if self.own is None:
            return None
        return self.own.factuality

    def to_json(self) -> str:
        return canonical(self)

    @classmethod
    def from_json(cls, text: str, where: str = EXAM) -> "Exam":
        """Parse an exam; `where` names it in messages. Raises CardError for anything but an exam of this format."""
        return read_record(
            cls, text, f"{where} is not an exam", EXAM_FORMAT, "examine the card again (kcard exam)"
        )


def read_record(cls: type[T], text: str, problem: str, form: int, remedy: str) -> T:
    """Parse a record of class `cls`. Raises CardError, starting with `problem`, unless it has the format `form`."""
    try:
        data = parse(text)
        if not isinstance(data, dict) or data.get("format") != form:
            raise CardError(f"{problem} of format {form}: {remedy}")
        return build(cls, data)
    except (ValueError, TypeError) as error:
        raise CardError(f"{problem}: {error}; {remedy}") from error


def read_exam(folder: Path) -> Exam | None:
    """Return the exam in a card's folder; None if it has none. Raises CardError for a malformed one."""
    path = folder / EXAM
    try:
        return Exam.from_json(path.read_text(encoding="utf-8"), str(path)) if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f"{path} can't be read: {error}; examine the card again (kcard exam)") from error


# Audits, and their JSON, which the hub stores beside the version.

AUDIT_FORMAT = 1


@dataclass(frozen=True)
class AuditedDocument:
    """A document from an audit. `evidence`: the text that supports it most; `window`: the part that decided its score.

    If the checker reports no window, it is the whole text.
    """

    query: str
    domain: str
    text: str
    faithfulness: float | None = None
    factuality: float | None = None
    evidence: Source | None = None
    window: str = ""


@dataclass(frozen=True)
class Domain:
    """The scores of one domain; the evidence does not cover `unknown` of its documents."""

    name: str
    queries: int
    faithfulness: Mean | None = None
    factuality: Mean | None = None
    unknown: int = 0


@dataclass(frozen=True)
class Audit:
    """An audit: how far a card's documents are supported by its own corpus and, separately, by independent evidence.

    card            its reference, or its name if it is not published
    kcard           the version of kcard that made the audit
    queries         name of the queries, with their sha256; `asked`: their number
    documents       generated for each query by each part of the card (model, index); `empty` of all had no text
    seed, limit     the sample of questions about its own corpus, and their maximum number
    temperature, tokens  how the documents were sampled
    checker         the checker's name; checker_sha256: of its weights, None if it declares none
    evidence        name of the independent evidence, with its sha256; `evidence_shared` of its texts are also in the
                    card's corpus; `evidence_notes`: warnings about it
    evidence_overlap  how much evidence and corpus overlap, in [0, 1]; None if that was not measured
    faithfulness    scores of the documents against the card's own corpus; None without its text
    factuality      scores of the documents that the independent evidence covers; None without evidence
    coverage        share of the documents that it covers; None if that was not measured
    domains         scores by the queries' domain; empty if there is only one
    ranked_by       the score by which `worst` was chosen
    """

    card: str
    kcard: str
    queries: str
    queries_sha256: str
    asked: int
    documents: int
    empty: int
    seed: int
    limit: int
    temperature: float
    tokens: int
    checker: str
    checker_sha256: str | None = None
    evidence: str | None = None
    evidence_sha256: str | None = None
    evidence_shared: int = 0
    evidence_overlap: float | None = None
    evidence_notes: tuple[str, ...] = ()
    faithfulness: Distribution | None = None
    factuality: Distribution | None = None
    coverage: Mean | None = None
    domains: tuple[Domain, ...] = ()
    ranked_by: str = "faithfulness"
    worst: tuple[AuditedDocument, ...] = ()
    format: int = AUDIT_FORMAT

    @property
    def independent(self) -> bool:
        """Whether the evidence is independent of the card's corpus, as far as that was measured."""
        return is_independent(self.evidence_overlap)

    def to_json(self) -> str:
        return canonical(self)

    @classmethod
    def from_json(cls, text: str, where: str = "audit") -> "Audit":
        """Parse an audit; `where` names it in messages. Raises CardError for anything but an audit of this format."""
        return read_record(
            cls, text, f"{where} is not an audit", AUDIT_FORMAT, "audit the card again (kcard audit)"
        )


# The results of an exam in a model card, with the sentences that explain them.


def with_results(page: str, exam: Exam) -> str:
    """Return README.md with this exam's results in place of an earlier exam's."""
    results: list[ExamResult] = []
    if exam.own is not None:
        results += _run_results(exam, exam.own, "own corpus", "corpus")
    if exam.given is not None:
        results += _run_results(exam, exam.given, exam.given.asked, "questions")
    return write_results(page, exam.card, results, explain_figures(exam))


def explain_figures(exam: Exam) -> list[str]:
    """Explain the figures and how they were measured, in a sentence or two each."""
    sentences = []
    # What was asked.
    if exam.own is not None:
        sentences.append(
            f"Recall: share of {exam.own.questions} questions about its own corpus ({exam.own.asked}) whose answer "
            "occurs in its documents."
        )
        if exam.own.admitted is not None:
            sentences.append(
                f"{exam.own.absent} further questions are not answered by the corpus; the embedded reader judges "
                "whether a document answers a question."
            )
    if exam.given is not None:
        sentences.append(
            f"The results on {exam.given.questions} questions of {exam.given.asked} are separate."
        )
    # What lift compares with.
    if exam.base == CHANCE:
        sentences.append(
            "The card has no base model, so lift is recall minus chance: how often the answer occurs in the "
            "documents for other questions."
        )
    elif exam.base_note:
        sentences.append(f"Lift over {exam.base} is unknown: {exam.base_note}.")
    else:
        sentences.append(f"Lift: recall minus that of {exam.base} without the card, on the same questions.")
    # The evidence and the checker.
    if exam.factuality is None and (exam.given is None or exam.given.factuality is None):
        sentences.append("Factuality was not measured: no independent evidence was given.")
    if exam.evidence_shared:
        sentences.append(f"{exam.evidence_shared} texts of the evidence are also in the card's own corpus.")
    if not is_independent(exam.evidence_overlap):
        sentences.append("The evidence is not independent of the card: it repeats the card's corpus.")
    digest = f", sha256 {exam.checker_sha256[:12]}" if exam.checker_sha256 else ""
    sentences.append(f"Checked by {exam.checker}{digest}; seed {exam.seed}; kcard {exam.kcard}.")
    return sentences


def _run_results(exam: Exam, run: ExamRun, dataset: str, kind: str) -> Iterator[ExamResult]:
    checked = {"checker": exam.checker, "sha256": exam.checker_sha256 or "unknown"}
    evidence = {**checked, "evidence": exam.evidence or "", "evidence_sha256": exam.evidence_sha256 or ""}
    against = {"base": exam.base}
    measured: tuple[tuple[str, str, Mean | None, dict[str, str] | None], ...] = (
        ("recall", "Recall", run.recall, None),
        ("recall-lift", f"Lift over {exam.base}", run.lift, against),
        ("recall-model", "Recall by the model alone", run.model, None),
        ("recall-index", "Recall by the index alone", run.index, None),
        ("answered", "Found answered", run.answered, None),
        ("admitted", "Not in the corpus, and admitted", run.admitted, None),
        ("faithfulness", "Faithfulness to its own corpus", _mean(run.faithfulness), checked),
        ("factuality", f"Factuality against {exam.evidence}", _mean(run.factuality), evidence),
    )
    # The data set was read from disk and has no name on a hub, so its digest identifies it.
    identifier = f"{kind}-{run.sha256[:12]}" if run.sha256 else kind
    for metric, name, mean, args in measured:
        if mean is not None:
            where = (dataset, identifier, run.sha256 or None)
            yield ExamResult(metric, name, mean.mean, mean.low, mean.high, *where, args)


def _mean(scores: Distribution | None) -> Mean | None:
    return None if scores is None else scores.mean
