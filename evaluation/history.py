"""The audits that a hub keeps of a card, read back, and which number of which source is shown."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from kcard.errors import CardError
from kcard.evaluation.audit_record import Audit
from kcard.evaluation.record import Distribution, Exam
from kcard.hub.repositories.figures import FLOOR, covers, is_independent

if TYPE_CHECKING:
    from kcard.hub.repositories.audits import StoredAudit

__all__ = ["Measured", "PastAudit", "PastExam", "latest_exam", "measured", "origin", "read"]


@dataclass(frozen=True)
class PastAudit:
    """An audit, the number of the version that it is about, and when it was taken, in UTC."""

    version: int
    taken: datetime
    audit: Audit

    def comparable(self, other: "PastAudit") -> bool:
        """Whether their scores may be compared: the same checker, evidence and queries."""
        mine, its = self.audit, other.audit
        return (mine.checker, mine.checker_sha256, mine.evidence_sha256, mine.queries_sha256) == (
            its.checker,
            its.checker_sha256,
            its.evidence_sha256,
            its.queries_sha256,
        )


@dataclass(frozen=True)
class PastExam:
    """An exam that the hub took, the number of the version that it is about, and when it was taken, in UTC."""

    version: int
    taken: datetime
    exam: Exam


@dataclass(frozen=True)
class Measured:
    """Scores and where they come from: `against` names the evidence; `taken`: when this hub measured them, in UTC.

    `taken` is None for what the card's own exam says. `coverage`: the share of the documents that have a score, in
    [0, 1]; None where it was not measured. `independent`: whether the evidence is not the card's own corpus.
    """

    scores: Distribution
    against: str
    taken: datetime | None = None
    coverage: float | None = None
    independent: bool = True

    @property
    def source(self) -> Literal["verified", "self-declared"]:
        return "self-declared" if self.taken is None else "verified"

    @property
    def origin(self) -> str:
        """The source with its day."""
        return origin(self.taken)


def origin(taken: datetime | None) -> str:
    """Where a figure comes from: the hub measured it then, or the card's own exam says so."""
    return (
        "self-declared, in the card's exam" if taken is None else f"verified by this hub on {taken:%Y-%m-%d}"
    )


def read(stored: Sequence["StoredAudit"]) -> tuple[tuple[PastAudit, ...], str]:
    """The audits in the order in which they were stored, and why some can't be read; empty where all can.

    Second audits after an appeal are left out: an administrator judges them.
    """
    found, problem = [], ""
    for row in stored:
        if row.finding.kind != "audit":
            continue
        try:
            audit = Audit.from_json(row.finding.record, _where("audit", row))
        except CardError as error:
            problem = str(error)  # one foreign record must not hide the others
        else:
            found.append(PastAudit(row.version, row.taken, audit))
    return tuple(found), problem


def latest_exam(stored: Sequence["StoredAudit"], version: int) -> PastExam | None:
    """The latest exam that the hub took of a version; None without one that can be read."""
    for row in reversed(stored):
        if row.finding.kind == "exam" and row.version == version:
            try:
                return PastExam(version, row.taken, Exam.from_json(row.finding.record, _where("exam", row)))
            except CardError:
                continue
    return None


def measured(
    what: Literal["faithfulness", "factuality"],
    audits: Sequence[PastAudit],
    taken: PastExam | None,
    declared: Exam | None,
    floor: float = FLOOR,
) -> Measured | None:
    """The scores of one version: by its latest audit that has them, else by the hub's exam, else by its own.

    For factuality the latest audit counts whose evidence is independent and covers at least `floor` of the documents;
    without one the latest with independent evidence, else the latest.

    The hub decides by the same number whether the card is quarantined (kcard.hub.repositories.figures).
    """
    ordered = sorted(audits, key=lambda past: _weight(past.audit, floor)) if what == "factuality" else audits
    for past in reversed(ordered):
        scores: Distribution | None = getattr(past.audit, what)
        if scores is not None and scores.mean is not None:
            found = Measured(scores, _against(what, past.audit.evidence), past.taken)
            if what == "faithfulness":
                return found
            covered = past.audit.coverage.mean if past.audit.coverage else None
            return replace(found, coverage=covered, independent=past.audit.independent)
    for exam, at in ((taken.exam, taken.taken) if taken else (None, None), (declared, None)):
        scores = getattr(exam, what) if exam else None
        if exam is not None and scores is not None:
            found = Measured(scores, _against(what, exam.evidence), at)
            if what == "faithfulness":
                return found
            independent = is_independent(exam.evidence_overlap)
            return replace(found, coverage=scores.coverage, independent=independent)
    return None


def _weight(audit: Audit, floor: float) -> tuple[bool, bool]:
    """What makes an audit's factuality count before that of others."""
    return audit.independent, covers(audit.coverage.mean if audit.coverage else None, floor)


def _where(what: str, row: "StoredAudit") -> str:
    return f"the {what} of {row.reference} at {row.taken:%Y-%m-%d}"


def _against(what: str, evidence: str | None) -> str:
    return "own corpus" if what == "faithfulness" else evidence or ""
