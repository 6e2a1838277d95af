"""Published cards side by side, as a table and as a web page."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from kcard.errors import CardError
from kcard.evaluation.audit import (
    PastAudit,
    PastExam,
    SourcedScores,
    find_scores,
    latest_exam,
    origin,
    read_audits,
)
from kcard.evaluation.metrics import counts
from kcard.evaluation.records import EXAM, Exam, Judged, Mean, mean_of
from kcard.hub.values import FLOOR

if TYPE_CHECKING:
    from kcard.hub.audits import StoredAudit
    from kcard.hub.registry import Hub
    from kcard.hub.values import DeclaredFigures, QuarantineReason, VerifiedFigures
    from kcard.hub.versions import Version

__all__ = ["SORTS", "CardReport", "Dot", "HistogramBar", "Plot", "Timeline", "plot", "reports", "timeline"]


# Geometry of the plot of a card's audits over time: values in, positions out. How they look is the template's.

Kind = Literal["faithfulness", "factuality"]
KINDS: tuple[Kind, ...] = ("faithfulness", "factuality")
SHOWN = 12


@dataclass(frozen=True)
class Dot:
    """A mean at (x, y) with its interval from `low` up to `high`, in the plot's units."""

    kind: Kind
    x: float
    y: float
    low: float
    high: float
    mean: Mean


@dataclass(frozen=True)
class Timeline:
    """The last audits, evenly spaced in the order taken.

    columns  for each audit where it stands, and the audit
    lines    between neighbours of one kind whose scores may be compared: kind, x and y of both ends
    """

    width: float
    height: float
    columns: tuple[tuple[float, PastAudit], ...]
    dots: tuple[Dot, ...]
    lines: tuple[tuple[Kind, float, float, float, float], ...]


def timeline(audits: Sequence[PastAudit], width: float = 560, height: float = 110) -> Timeline:
    """Lay out scores in [0, 1] from the bottom to the top, for the latest SHOWN audits."""
    shown = audits[-SHOWN:]
    step = width / max(len(shown), 4)
    columns = [(round((i + 0.5) * step, 2), past) for i, past in enumerate(shown)]
    dots: list[Dot] = []
    lines: list[tuple[Kind, float, float, float, float]] = []
    for nudge, kind in zip((-4, 4), KINDS, strict=True):
        before: tuple[PastAudit, Dot] | None = None
        for x, past in columns:
            scores = past.audit.faithfulness if kind == "faithfulness" else past.audit.factuality
            if scores is None or (mean := scores.mean) is None:
                continue
            y, low, high = (round(height * (1 - value), 2) for value in (mean.mean, mean.low, mean.high))
            dot = Dot(kind, x + nudge, y, low, high, mean)
            dots.append(dot)
            if before is not None and past.comparable(before[0]):
                lines.append((kind, before[1].x, before[1].y, dot.x, dot.y))
            before = past, dot
    return Timeline(width, height, tuple(columns), tuple(dots), tuple(lines))


# Geometry of the page's plots: numbers in, rectangles and positions out. How they look is the template's.


@dataclass(frozen=True)
class HistogramBar:
    """A rectangle in the plot's units, and what it stands for: `count` scores in [low, high)."""

    x: float
    y: float
    width: float
    height: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Plot:
    """A histogram of scores in [0, 1]. `mean_x`: where the mean lies; None where there are no scores."""

    width: float
    height: float
    bars: tuple[HistogramBar, ...]
    most: int
    mean_x: float | None


def plot(scores: Sequence[float], bins: int = 20, width: float = 400, height: float = 120) -> Plot:
    """Return bars of equal width, the fullest as high as the plot; empty ranges have no bar."""
    bin_counts = counts(scores, bins)
    most, step, gap = max(bin_counts), width / bins, min(2.0, width / bins / 6)
    bars = []
    for i, n in enumerate(bin_counts):
        if n:
            tall = max(height * n / most, 1.5)
            bars.append(
                HistogramBar(
                    _r(i * step + gap / 2),
                    _r(height - tall),
                    _r(step - gap),
                    _r(tall),
                    i / bins,
                    (i + 1) / bins,
                    n,
                )
            )
    mean = _r(sum(scores) / len(scores) * width) if scores else None
    return Plot(width, height, tuple(bars), most, mean)


def _r(value: float) -> float:
    return round(value, 2)


@dataclass(frozen=True)
class CardReport:
    """One published card, its exams, and the audits of all its versions, oldest first.

    size         in bytes
    exam         the one that came with the card
    hub_exam     the latest one that this hub took
    note         why it has no exam, or an audit can't be read, where that is so
    quarantine   why it is quarantined, where it is: its factuality is under the hub's `threshold`, by evidence that
                 covers at least `floor` of what it wrote
    declared, verified, unexamined  as of the hub's Version
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
        """Those of this version."""
        return tuple(past for past in self.audits if past.version == self.number)

    @property
    def audit(self) -> PastAudit | None:
        """The latest of this version."""
        return self.own_audits[-1] if self.own_audits else None

    @property
    def best_exam(self) -> Exam | None:
        """The exam that recall and lift come from: the hub's, else the card's own."""
        return self.hub_exam.exam if self.hub_exam else self.exam

    @property
    def recall_source(self) -> str:
        """Whether recall and lift are verified or self-declared; empty without an exam."""
        if self.best_exam is None:
            return ""
        return VERIFIED if self.hub_exam else DECLARED

    @property
    def recall_origin(self) -> str | None:
        """Where recall and lift come from; None without an exam."""
        if self.best_exam is None:
            return None
        return origin(self.hub_exam.taken if self.hub_exam else None)

    @property
    def recall(self) -> float | None:
        """Share of held-out questions answered, in [0, 1]; None without an exam."""
        return self.best_exam.recall.mean if self.best_exam and self.best_exam.recall else None

    @property
    def lift(self) -> float | None:
        """Recall less that of the card's base, or less chance, in [-1, 1]; None where it is not known."""
        return self.best_exam.lift.mean if self.best_exam and self.best_exam.lift else None

    @property
    def given(self) -> float | None:
        """Recall on the exam file, in [0, 1]; None where none was given."""
        recall = self.exam.given.recall if self.exam and self.exam.given else None
        return recall.mean if recall else None

    @property
    def faithful(self) -> SourcedScores | None:
        """Scores against the card's own corpus: those that this hub measured, else those of its own exam."""
        return find_scores("faithfulness", self.own_audits, self.hub_exam, self.exam)

    @property
    def factual(self) -> SourcedScores | None:
        """Scores against independent evidence, likewise; None where there was none."""
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
        """The share of the documents that the evidence of `factual` covers, in [0, 1]; None where it is not known."""
        return self.factual.coverage if self.factual else None

    @property
    def ranked_factuality(self) -> float | None:
        """The factuality by which cards are ranked: None where the evidence is the card's own corpus."""
        return self.factuality if self.factual and self.factual.independent else None

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
# What is better or bigger comes first; self-declared figures come after all verified ones, and what is unknown last.
SORTS: dict[str, Callable[[CardReport], Any]] = {
    "name": lambda r: r.name,
    "domain": lambda r: (r.domain, r.name),
    "base": lambda r: (r.base, r.name),
    "size": lambda r: -r.size,
    "recall": lambda r: _descending(r.recall, r.recall_source),
    "lift": lambda r: _descending(r.lift, r.recall_source),
    "faithfulness": lambda r: _descending(r.faithfulness, r.faithful.source if r.faithful else ""),
    "factuality": lambda r: _descending(r.ranked_factuality, r.factual.source if r.factual else ""),
}


def reports(hub: "Hub", chosen: "Sequence[Version]") -> list[CardReport]:
    """Return what is known of each version. An exam or audit that can't be read becomes a note."""
    names = {version.name for version in chosen}
    stored: dict[str, list[StoredAudit]] = {}
    for row in hub.audits.list(names.pop() if len(names) == 1 else None):
        stored.setdefault(row.card, []).append(row)
    reasons, threshold = hub.quarantine.find_reasons(chosen), hub.quarantine.threshold
    floor = hub.quarantine.coverage
    return [
        replace(
            _report(hub, version, stored.get(version.name, ())),
            quarantine=reasons.get(version.reference),
            threshold=threshold,
            floor=floor,
        )
        for version in chosen
    ]


def _report(hub: "Hub", version: "Version", stored: "Sequence[StoredAudit]") -> CardReport:
    manifest = version.manifest
    exam, note = None, "not examined"
    try:
        if EXAM in version.files:
            with hub.open(version.reference, EXAM) as stream:
                exam, note = Exam.from_json(stream.read().decode()), ""
    except (CardError, UnicodeDecodeError) as error:
        # One card's foreign exam must not hide the others.
        note = str(error)
    audits, problem = read_audits(stored)
    return CardReport(
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
        hub_exam=latest_exam(stored, version.number),
        audits=audits,
        declared=version.declared,
        verified=version.verified,
        unexamined=version.unexamined,
    )


def _descending(value: float | None, source: str) -> tuple[bool, float]:
    return source != VERIFIED, math.inf if value is None else -value
