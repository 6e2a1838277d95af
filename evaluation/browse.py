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
from kcard.evaluation.records import EXAM, Exam, Judged, mean_of, value_of
from kcard.hub.values import DECLARED, FLOOR, VERIFIED, ScoreEstimate

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
        audits = self.own_audits
        if not audits:
            return None
        return audits[-1]

    @property
    def best_exam(self) -> Exam | None:
        """The exam that recall and lift come from: the hub's, else the card's own; None without an exam."""
        if self.hub_exam is not None:
            return self.hub_exam.exam
        return self.exam

    @property
    def recall_source(self) -> str:
        """Whether recall and lift are verified or self-declared; "" without an exam."""
        if self.hub_exam is not None:
            return VERIFIED
        if self.exam is not None:
            return DECLARED
        return ""

    @property
    def recall_origin(self) -> str | None:
        """Description of where recall and lift come from; None without an exam."""
        if self.hub_exam is not None:
            return describe_origin(self.hub_exam.taken)
        if self.exam is not None:
            return describe_origin(None)
        return None

    @property
    def recall(self) -> float | None:
        """Share of held-out questions answered, in [0, 1]; None without an exam."""
        exam = self.best_exam
        if exam is None:
            return None
        return value_of(exam.recall)

    @property
    def lift(self) -> float | None:
        """Recall minus that of the card's base, or minus chance, in [-1, 1]; None if unknown."""
        exam = self.best_exam
        if exam is None:
            return None
        return value_of(exam.lift)

    @property
    def given(self) -> float | None:
        """Recall on the exam file, in [0, 1]; None without a file."""
        exam = self.exam
        if exam is None or exam.given is None:
            return None
        return value_of(exam.given.recall)

    @property
    def given_estimate(self) -> ScoreEstimate | None:
        """Recall on the exam file with its sample of questions."""
        exam = self.exam
        if exam is None or exam.given is None:
            return None
        return estimate_of(exam.given.recall, exam.given.questions)

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
        scores = self.faithful
        if scores is None:
            return None
        return mean_of(scores.scores)

    @property
    def factuality(self) -> float | None:
        """Mean of `factual`, in [0, 1]."""
        scores = self.factual
        if scores is None:
            return None
        return mean_of(scores.scores)

    @property
    def coverage(self) -> float | None:
        """Share of the documents that the evidence of `factual` covers, in [0, 1]; None if unknown."""
        scores = self.factual
        if scores is None:
            return None
        return scores.coverage

    @property
    def standing(self) -> SourcedScores | None:
        """The factuality by which the card is ranked: that of this version or, while it waits for an audit, that of the
        newest version before it which an audit measured with independent evidence.
        """
        own = self.factual
        if own is not None and own.source == VERIFIED and own.independent:
            return own
        # The audits of the newest earlier version that has any.
        newest: list[PastAudit] = []
        for past in self.audits:
            is_measured = past.audit.independent and mean_of(past.audit.factuality) is not None
            if past.version >= self.number or not is_measured:
                continue
            if newest and past.version > newest[0].version:
                newest = []
            if not newest or past.version == newest[0].version:
                newest.append(past)
        if not newest:
            return own
        return find_scores("factuality", newest, None, None, self.floor)

    @property
    def waits(self) -> bool:
        """Whether `standing` is of an earlier version, since this one is not measured yet."""
        return self.standing is not None and (self.standing.version or self.number) < self.number

    @property
    def ranked_factuality(self) -> float | None:
        """The factuality by which cards are ranked; None if the evidence is not independent of the card's corpus."""
        standing = self.standing
        if standing is None or not standing.independent:
            return None
        return mean_of(standing.scores)

    @property
    def recall_estimate(self) -> ScoreEstimate | None:
        """Recall with its sample of questions."""
        exam = self.best_exam
        if exam is None or exam.own is None:
            return None
        return estimate_of(exam.own.recall, exam.own.questions)

    @property
    def lift_estimate(self) -> ScoreEstimate | None:
        """Lift with its sample of questions."""
        exam = self.best_exam
        if exam is None or exam.own is None:
            return None
        return estimate_of(exam.own.lift, exam.own.questions)

    @property
    def faithfulness_scores(self) -> tuple[float, ...]:
        return _scores_of(self.faithful)

    @property
    def factuality_scores(self) -> tuple[float, ...]:
        return _scores_of(self.factual)

    @property
    def best(self) -> tuple[Judged, ...]:
        if self.exam is None:
            return ()
        return self.exam.best

    @property
    def worst(self) -> tuple[Judged, ...]:
        if self.exam is None:
            return ()
        return self.exam.worst


def _source_of(sourced: SourcedScores | None) -> str:
    if sourced is None:
        return ""
    return sourced.source


def _scores_of(sourced: SourcedScores | None) -> tuple[float, ...]:
    if sourced is None:
        return ()
    return sourced.scores.scores


# The best or largest comes first; self-declared figures come after all verified ones, unknown figures last.
SORTS: dict[str, Callable[[CardReport], Any]] = {
    "name": lambda r: r.name,
    "domain": lambda r: (r.domain, r.name),
    "base": lambda r: (r.base, r.name),
    "size": lambda r: -r.size,
    "recall": lambda r: _descending(r.recall, r.recall_source),
    "lift": lambda r: _descending(r.lift, r.recall_source),
    "faithfulness": lambda r: _descending(r.faithfulness, _source_of(r.faithful)),
    "factuality": lambda r: _descending(r.ranked_factuality, _source_of(r.standing)),
}


def make_reports(hub: "Hub", chosen: "Sequence[Version]") -> list[CardReport]:
    """Return a report of each version. An exam or audit that can't be read becomes a note."""
    # The stored audits by card, and the thresholds of the quarantine.
    names = {version.name for version in chosen}
    only_name = None
    if len(names) == 1:
        only_name = names.pop()
    stored: dict[str, list[StoredAudit]] = {}
    for row in hub.audits.list(only_name):
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
    if value is None:
        return source != VERIFIED, math.inf
    return source != VERIFIED, -value
