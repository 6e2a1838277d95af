"""What an exam found, as values, and exam.json, which travels with the card."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kcard.answer import Source
from kcard.errors import CardError
from kcard.evaluation.intervals import interval
from kcard.json_values import build, canonical, parse

__all__ = ["EXAM", "Distribution", "EvalRun", "Exam", "Judged", "Mean", "mean_of", "read_exam", "read_record"]

EXAM = "exam.json"
FORMAT = 2
DIGITS = 4
T = TypeVar("T")


@dataclass(frozen=True)
class Mean:
    """A mean and its 95 % interval (metrics.interval): of shares and scores in [0, 1], of differences in [-1, 1]."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], seed: int = 0, *, paired: bool = False) -> "Mean | None":
        """None for no values; `paired`: they are differences."""
        if not values:
            return None
        low, high = interval(values, seed, paired=paired)
        return cls(round(sum(values) / len(values), DIGITS), round(low, DIGITS), round(high, DIGITS))

    def __str__(self) -> str:
        return f"{self.mean:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Distribution:
    """Checker scores in [0, 1], one a passage; `unknown` passages have none: the evidence does not cover them."""

    scores: tuple[float, ...]
    mean: Mean | None
    unknown: int = 0

    @classmethod
    def of(cls, scores: Sequence[float | None], seed: int = 0) -> "Distribution":
        known = [score for score in scores if score is not None]
        shown = tuple(round(score, DIGITS) for score in known)
        return cls(shown, Mean.of(known, seed), len(scores) - len(known))

    @property
    def coverage(self) -> float | None:
        """The share of the passages that have a score, in [0, 1]; None without passages."""
        passages = len(self.scores) + self.unknown
        return round(len(self.scores) / passages, DIGITS) if passages else None


def mean_of(distribution: Distribution | None) -> float | None:
    """Its mean; None where it was not measured, or no evidence was found."""
    return distribution.mean.mean if distribution and distribution.mean else None


@dataclass(frozen=True)
class Judged:
    """A passage that the card wrote in the exam. `evidence`: the text that the ranking score comes from."""

    question: str
    answer: str
    text: str
    recalled: bool
    faithfulness: float | None = None
    factuality: float | None = None
    evidence: Source | None = None


@dataclass(frozen=True)
class EvalRun:
    """One set of questions, asked, and what came of them.

    asked             what was asked: forms held out of training, or the name of a file
    sha256            where the questions come from: the digest of the corpus, or of the file
    questions_sha256  the digest of the questions and their accepted answers
    recall            share of questions whose answer occurs in what the card wrote, greedily: one document,
                      of a card of both one of its model and one of its index
    base              the same of the exam's base; None where it could not be asked
    lift              recall - base, question by question
    model, index      recall by the card's model alone and by its index alone, of a card of both
    answered          share of the questions that the embedded reader finds answered in what the card wrote
    absent, admitted  how many questions on things that are not in the corpus were asked besides, and the share of them
                      that it finds unanswered
    faithfulness      the documents against the card's own corpus; None where its text is not at hand
    factuality        the documents against independent evidence; None without any. The two are never mixed
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
    """What a card knows of its own corpus and, apart from it, of a given file; how far it can be trusted.

    kcard            the version of kcard that asked
    seed, limit      which questions were drawn, and at most how many
    own              on the card's own corpus; None where its text is not at hand
    given            on a given file; None where none was given
    base             what recall is compared with: a base model, or `chance`
    base_note        why the base could not be asked, where it could not
    checker          who judged, and the sha256 of its weights, where it names one
    evidence         the independent evidence by name and digest; `evidence_shared` of its texts repeat the card's
                     corpus, and `evidence_overlap` says how far the two are the same, in [0, 1]: from 0.1 on the
                     evidence is not independent
    ranked_by        the score by which `best` and `worst` of `own` were chosen
    """

    card: str
    kcard: str
    own: EvalRun | None
    given: EvalRun | None = None
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
    format: int = FORMAT

    @property
    def recall(self) -> Mean | None:
        """On the card's own corpus."""
        return self.own.recall if self.own else None

    @property
    def lift(self) -> Mean | None:
        """On the card's own corpus."""
        return self.own.lift if self.own else None

    @property
    def faithfulness(self) -> Distribution | None:
        """Of what the card wrote when asked about its own corpus."""
        return self.own.faithfulness if self.own else None

    @property
    def factuality(self) -> Distribution | None:
        """Of what the card wrote when asked about its own corpus."""
        return self.own.factuality if self.own else None

    def to_json(self) -> str:
        return canonical(self)

    @classmethod
    def from_json(cls, text: str, where: str = EXAM) -> "Exam":
        """Raises CardError for anything that is not an exam of this format."""
        return read_record(
            cls, text, f"{where} is not an exam", FORMAT, "examine the card again (kcard exam)"
        )


def read_record(cls: type[T], text: str, problem: str, form: int, remedy: str) -> T:
    """A record of that class from its JSON; CardError, which begins with `problem`, where it is not of that format."""
    try:
        data = parse(text)
        if not isinstance(data, dict) or data.get("format") != form:
            raise CardError(f"{problem} of format {form}: {remedy}")
        return build(cls, data)
    except (ValueError, TypeError) as error:
        raise CardError(f"{problem}: {error}; {remedy}") from error


def read_exam(folder: Path) -> Exam | None:
    """The exam that travels with a card; None where it has none. Raises CardError for a malformed one."""
    path = folder / EXAM
    try:
        return Exam.from_json(path.read_text(encoding="utf-8"), str(path)) if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise CardError(f"{path} can't be read: {error}; examine the card again (kcard exam)") from error
