"""Published cards with their exams and audits, for the table of `kcard browse`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kcard.errors import CardError
from kcard.evaluation.audit_history import (
    PastAudit,
    PastExam,
    SourcedScores,
    describe_origin,
    estimate_of,
    find_scores,
    latest_exam,
    read_audits,
)
from kcard.evaluation.records import EXAM, Exam, Judged, mean_of
from kcard.hub.values import FLOOR, ScoreEstimate

if TYPE_CHECKING:
    from kcard.hub.audits import StoredAudit
    from kcard.hub.db.models import Version
    from kcard.hub.registry import Hub
    from kcard.hub.values import DeclaredFigures, QuarantineReason, VerifiedFigures


@dataclass(frozen=True)
class CardReport:
    """A published version, its exams, and the audits of all versions of the card, oldest first.

    size         in bytes
    exam         the exam that travels with the card
    hub_exam     the latest exam that this hub made
    note         why it has no exam, and why an audit can't be read; "" if neither applies
    quarantine   why it is quarantined: its factuality is below the hub's `threshold`, by evidence that covers at least
                 `floor` of its documents; None if it is not
    declared, verified, unexamined  as in the hub's Version
    """

    reference: str
    number: int
    name: str
    description: str
    domain: str
    base: str
    kind: str
    size: int
    published: datetime
    exam: Exam | None = None
    note: str = ""
    hub_exam: PastExam | None = None
    audits: tuple[PastAudit, ...] = ()
    quarantine: "QuarantineReason | None" = None
    threshold: float | None = None
    floor: float = FLOOR
    declared: "DeclaredFigures | None" = None
    verified: "VerifiedFigures | None" = None
    unexamined: bool = False

    @property
    def quarantined(self) -> bool:
        return self.quarantine is not None

    @property
    def own_audits(self) -> tuple[PastAudit, ...]:
        """The audits of this version."""
        return tuple(past for past in self.audits if past.version == self.number)

    @property
    def audit(self) -> PastAudit | None:
        """The latest audit of this version."""
        return self.own_audits[-1] if self.own_audits else None

    @property
    def best_exam(self) -> Exam | None:
        """The exam that recall and lift come from: the hub's, else the card's own; None without an exam."""
        return self.hub_exam.exam if self.hub_exam else self.exam

    @property
    def recall_source(self) -> str:
        """Whether recall and lift are verified or self-declared; "" without an exam."""
        if self.best_exam is None:
            return ""
        return VERIFIED if self.hub_exam else DECLARED

    @property
    def recall_origin(self) -> str | None:
        """Description of where recall and lift come from; None without an exam."""
        if self.best_exam is None:
            return None
        return describe_origin(self.hub_exam.taken if self.hub_exam else None)

    @property
    def recall(self) -> float | None:
        """Share of held-out questions answered, in [0, 1]; None without an exam."""
        return self.best_exam.recall.mean if self.best_exam and self.best_exam.recall else None

    @property
    def lift(self) -> float | None:
        """Recall minus that of the card's base, or minus chance, in [-1, 1]; None if unknown."""
        return self.best_exam.lift.mean if self.best_exam and self.best_exam.lift else None

    @property
    def given(self) -> float | None:
        """Recall on the exam file, in [0, 1]; None without a file."""
        recall = self.exam.given.recall if self.exam and self.exam.given else None
        return recall.mean if recall else None

    @property
    def given_estimate(self) -> ScoreEstimate | None:
        """Recall on the exam file with its sample of questions."""
        run = self.exam.given if self.exam else None
        return estimate_of(run.recall, run.questions) if run else None

    @property
    def faithful(self) -> SourcedScores | None:
        """Scores against the card's own corpus: measured by this hub, else from the card's own exam."""
        return find_scores("faithfulness", self.own_audits, self.hub_exam, self.exam)

    @property
    def factual(self) -> SourcedScores | None:
        """Scores against independent evidence, likewise; None without evidence."""
        return find_scores("factuality", self.own_audits, self.hub_exam, self.exam, self.floor)

    @property
    def faithfulness(self) -> float | None:
        """Mean of `faithful`, in [0, 1]."""
        return mean_of(self.faithful.scores) if self.faithful else None

    @property
    def factuality(self) -> float | None:
        """Mean of `factual`, in [0, 1]."""
        return mean_of(self.factual.scores) if self.factual else None

    @property
    def coverage(self) -> float | None:
        """Share of the documents that the evidence of `factual` covers, in [0, 1]; None if unknown."""
        return self.factual.coverage if self.factual else None

    @property
    def standing(self) -> SourcedScores | None:
        """The factuality by which the card is ranked: that of this version or, while it waits for an audit, that of the
        newest version before it which an audit measured with independent evidence.
        """
        own = self.factual
        if own is not None and own.source == VERIFIED and own.independent:
            return own
        measured = [
            past
            for past in self.audits
            if past.version < self.number
            and past.audit.independent
            and mean_of(past.audit.factuality) is not None
        ]
        newest = max((past.version for past in measured), default=None)
        earlier = [past for past in measured if past.version == newest]
        return find_scores("factuality", earlier, None, None, self.floor) if earlier else own

    @property
    def waits(self) -> bool:
        """Whether `standing` is of an earlier version, since this one is not measured yet."""
        return self.standing is not None and (self.standing.version or self.number) < self.number

    @property
    def ranked_factuality(self) -> float | None:
        """The factuality by which cards are ranked; None if the evidence is not independent of the card's corpus."""
        return mean_of(self.standing.scores) if self.standing and self.standing.independent else None

    @property
    def recall_estimate(self) -> ScoreEstimate | None:
        """Recall with its sample of questions."""
        exam = self.best_exam
        return estimate_of(exam.recall, exam.own.questions) if exam and exam.own else None

    @property
    def lift_estimate(self) -> ScoreEstimate | None:
        """Lift with its sample of questions."""
        exam = self.best_exam
        return estimate_of(exam.lift, exam.own.questions) if exam and exam.own else None

    @property
    def faithfulness_scores(self) -> tuple[float, ...]:
        return self.faithful.scores.scores if self.faithful else ()

    @property
    def factuality_scores(self) -> tuple[float, ...]:
        return self.factual.scores.scores if self.factual else ()

    @property
    def best(self) -> tuple[Judged, ...]:
        return self.exam.best if self.exam else ()

    @property
    def worst(self) -> tuple[Judged, ...]:
        return self.exam.worst if self.exam else ()


VERIFIED, DECLARED = "verified", "self-declared"
# The best or largest comes first; self-declared figures come after all verified ones, unknown figures last.
SORTS: dict[str, Callable[[CardReport], Any]] = {
    "name": lambda r: r.name,
    "domain": lambda r: (r.domain, r.name),
    "base": lambda r: (r.base, r.name),
    "size": lambda r: -r.size,
    "recall": lambda r: _descending(r.recall, r.recall_source),
    "lift": lambda r: _descending(r.lift, r.recall_source),
    "faithfulness": lambda r: _descending(r.faithfulness, r.faithful.source if r.faithful else ""),
    "factuality": lambda r: _descending(r.ranked_factuality, r.standing.source if r.standing else ""),
}


def make_reports(hub: "Hub", chosen: "Sequence[Version]") -> list[CardReport]:
    """Return a report of each version. An exam or audit that can't be read becomes a note."""
    # The stored audits by card, and the thresholds of the quarantine.
    names = {version.name for version in chosen}
    stored: dict[str, list[StoredAudit]] = {}
    for row in hub.audits.list(names.pop() if len(names) == 1 else None):
        stored.setdefault(row.card, []).append(row)
    threshold, floor = hub.quarantine.threshold, hub.quarantine.coverage
    card_reports = []
    for version in chosen:
        # The exam that travels with the card; a malformed one must not hide the other cards.
        exam, note = None, "not examined"
        try:
            if EXAM in version.files:
                with hub.open(version.reference, EXAM) as stream:
                    exam, note = Exam.from_json(stream.read().decode()), ""
        except (CardError, UnicodeDecodeError) as error:
            note = str(error)
        manifest, rows = version.manifest, stored.get(version.name, ())
        audits, problem = read_audits(rows)
        card_reports.append(
            CardReport(
                reference=version.reference,
                number=version.number,
                name=version.name,
                description=manifest.description,
                domain=manifest.domain,
                base=manifest.base.name or ("no model" if manifest.kind == "retrieval" else "from scratch"),
                kind=manifest.kind,
                size=version.size,
                published=version.published,
                exam=exam,
                note="; ".join(filter(None, (note, problem))),
                hub_exam=latest_exam(rows, version.number),
                audits=audits,
                quarantine=version.quarantine,
                threshold=threshold,
                floor=floor,
                declared=version.declared,
                verified=version.verified,
                unexamined=version.unexamined,
            )
        )
    return card_reports


def _descending(value: float | None, source: str) -> tuple[bool, float]:
    return source != VERIFIED, math.inf if value is None else -value
