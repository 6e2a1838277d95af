"""Audits and exams that a hub has stored about a card, and which of their scores is shown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from kcard.errors import CardError
from kcard.evaluation.records import Audit, Distribution, Exam, Mean, value_of
from kcard.hub.values import FLOOR, ScoreEstimate, covers_enough, is_independent

if TYPE_CHECKING:
    from kcard.hub.audits import StoredAudit


@dataclass(frozen=True)
class PastAudit:
    """An audit of a version (by its number), with the time of the audit in UTC."""

    version: int
    taken: datetime
    audit: Audit


@dataclass(frozen=True)
class PastExam:
    """An exam of a version (by its number) that the hub made, with its time in UTC."""

    version: int
    taken: datetime
    exam: Exam


@dataclass(frozen=True)
class SourcedScores:
    """Scores and where they come from.

    against      name of the evidence
    taken        when this hub measured them, in UTC; None for scores that the card's own exam declares
    coverage     share of the documents that have a score, in [0, 1]; None if it was not measured
    independent  whether the evidence is independent of the card's corpus, and `overlap`, how far it repeats it, in
                 [0, 1]; None if that was not measured
    version      the number of the version that an audit measured; None for scores of an exam
    """

    scores: Distribution
    against: str
    taken: datetime | None = None
    coverage: float | None = None
    independent: bool = True
    overlap: float | None = None
    version: int | None = None

    @property
    def estimate(self) -> ScoreEstimate | None:
        """The mean with its sample; None if the evidence covers no document."""
        return estimate_of(self.scores.mean, len(self.scores.scores))

    @property
    def source(self) -> Literal["verified", "self-declared"]:
        if self.taken is None:
            return "self-declared"
        return "verified"

    @property
    def origin(self) -> str:
        """The source, with the day of the measurement."""
        return describe_origin(self.taken)


def estimate_of(mean: Mean | None, count: int) -> ScoreEstimate | None:
    """Return a mean of so many scores or questions as a hub shows it; None for None."""
    if mean is None:
        return None
    return ScoreEstimate(mean.mean, count, mean.low, mean.high)


def describe_origin(taken: datetime | None) -> str:
    """Describe where a figure comes from: measured by the hub at `taken`, or declared by the card's own exam."""
    if taken is None:
        return "self-declared, in the card's exam"
    return f"verified by this hub on {taken:%Y-%m-%d}"


def read_audits(stored: Sequence["StoredAudit"]) -> tuple[tuple[PastAudit, ...], str]:
    """Return the audits in the order in which they were stored, and a message if one can't be read, else ""."""
    audits, problem = [], ""
    for row in stored:
        if row.finding.kind != "audit":
            continue
        try:
            audit = Audit.from_json(row.finding.record, _where("audit", row))
        except CardError as error:
            problem = str(error)  # one malformed record must not hide the others
        else:
            audits.append(PastAudit(row.version, row.taken, audit))
    return tuple(audits), problem


def latest_exam(stored: Sequence["StoredAudit"], version: int) -> PastExam | None:
    """Return the latest readable exam of a version that the hub made; None if there is none."""
    for row in reversed(stored):
        if row.finding.kind == "exam" and row.version == version:
            try:
                return PastExam(version, row.taken, Exam.from_json(row.finding.record, _where("exam", row)))
            except CardError:
                continue
    return None


def find_scores(
    what: Literal["faithfulness", "factuality"],
    audits: Sequence[PastAudit],
    taken: PastExam | None,
    declared: Exam | None,
    floor: float = FLOOR,
) -> SourcedScores | None:
    """Return the scores to show for a version: of its latest audit, else of the hub's exam, else of the card's own.

    For factuality, the latest audit whose evidence is independent and covers at least `floor` of the documents comes
    first, then the latest with independent evidence, then the latest. The hub quarantines by the same score
    (kcard.hub.values).
    """
    # The audit that comes last in this order and has scores.
    ordered = audits
    if what == "factuality":

        def weight(past: PastAudit) -> tuple[bool, bool]:
            is_covered = covers_enough(value_of(past.audit.coverage), floor)
            return past.audit.independent, is_covered

        ordered = sorted(audits, key=weight)
    for past in reversed(ordered):
        scores: Distribution | None = getattr(past.audit, what)
        if scores is not None and scores.mean is not None:
            against = _against(what, past.audit.evidence)
            sourced = SourcedScores(scores, against, past.taken, version=past.version)
            if what == "faithfulness":
                return sourced
            return replace(
                sourced,
                coverage=value_of(past.audit.coverage),
                independent=past.audit.independent,
                overlap=past.audit.evidence_overlap,
            )
    # If there is none, the hub's exam, else the card's own.
    exams: list[tuple[Exam, datetime | None]] = []
    if taken is not None:
        exams.append((taken.exam, taken.taken))
    if declared is not None:
        exams.append((declared, None))
    for exam, at in exams:
        scores = getattr(exam, what)
        if scores is not None:
            sourced = SourcedScores(scores, _against(what, exam.evidence), at)
            if what == "faithfulness":
                return sourced
            independent = is_independent(exam.evidence_overlap)
            overlap = exam.evidence_overlap
            return replace(sourced, coverage=scores.coverage, independent=independent, overlap=overlap)
    return None


def _where(what: str, row: "StoredAudit") -> str:
    return f"the {what} of {row.reference} at {row.taken:%Y-%m-%d}"


def _against(what: str, evidence: str | None) -> str:
    if what == "faithfulness":
        return "own corpus"
    return evidence or ""
