"""The audits that a hub keeps of a card, read back, and which number of which source is shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from kcard.errors import CardError
from kcard.evaluation.audit_record import Audit
from kcard.evaluation.record import Distribution, Exam

if TYPE_CHECKING:
    from kcard.hub.repositories.audits import StoredAudit

__all__ = ["Measured", "PastAudit", "measured", "read"]


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
class Measured:
    """Scores and where they come from: `against` names the evidence; `taken`: when, of an audit, None of an exam."""

    scores: Distribution
    against: str
    taken: datetime | None = None

    @property
    def source(self) -> Literal["audit", "exam"]:
        return "exam" if self.taken is None else "audit"

    @property
    def origin(self) -> str:
        """The source with its day."""
        return "exam" if self.taken is None else f"audit of {self.taken:%Y-%m-%d}"


def read(stored: Sequence["StoredAudit"]) -> tuple[tuple[PastAudit, ...], str]:
    """The audits in the order in which they were stored, and why some can't be read; empty where all can."""
    found, problem = [], ""
    for row in stored:
        try:
            audit = Audit.from_json(
                row.finding.record, f"the audit of {row.reference} at {row.taken:%Y-%m-%d}"
            )
        except CardError as error:
            problem = str(error)  # one foreign record must not hide the others
        else:
            found.append(PastAudit(row.version, row.taken, audit))
    return tuple(found), problem


def measured(what: str, audits: Sequence[PastAudit], exam: Exam | None) -> Measured | None:
    """The faithfulness or factuality of one version: by its latest audit that measured it, else by its exam.

    An exam comes with the card, from whoever made it; an audit was taken here. The hub decides by the same number
    whether the card is quarantined (kcard.hub.repositories.quarantine).
    """
    for past in reversed(audits):
        scores: Distribution | None = getattr(past.audit, what)
        if scores is not None and scores.mean is not None:
            return Measured(scores, _against(what, past.audit.evidence), past.taken)
    scores = getattr(exam, what) if exam else None
    return None if scores is None else Measured(scores, _against(what, exam.evidence if exam else None))


def _against(what: str, evidence: str | None) -> str:
    return "own corpus" if what == "faithfulness" else evidence or ""
