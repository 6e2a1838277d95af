"""How far cards can be trusted, as pages show it: figures with their samples, and which version they are of."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from kcard.errors import KcardError
from kcard.hub import versions as card_versions
from kcard.hub.db.models import AuditRow, Version
from kcard.hub.figures import EXAM_FIGURES, MeasuredFigure, read_audit, read_figure
from kcard.hub.services import HubServices
from kcard.hub.storage import Blobs
from kcard.hub.values import ScoreEstimate, Tone

Source: TypeAlias = Literal["measured", "declared"]
LARGEST = 2_000_000  # bytes of an exam


@dataclass(frozen=True)
class Trust:
    """The factuality of a card, as its pages and lists show it.

    figure    with its sample; None: not measured
    number    of the version that it belongs to
    newest    number of the newest version; if `number` is below it, the newest one waits for its audit
    audit     that measured it; None: it is self-declared
    questions number of questions of that audit; None: unknown
    declared  what the newest version declares, if an audit measured `figure`
    """

    figure: MeasuredFigure | None
    number: int
    newest: int
    audit: AuditRow | None = None
    questions: int | None = None
    declared: ScoreEstimate | None = None

    @property
    def estimate(self) -> ScoreEstimate | None:
        return None if self.figure is None else self.figure.estimate

    @property
    def source(self) -> Source:
        """Whether an audit of this hub measured the figure, or the card's own exam declares it."""
        return "declared" if self.audit is None else "measured"

    @property
    def waits(self) -> bool:
        """Whether the figure is of an older version, since the newest is not measured yet."""
        return self.number < self.newest

    @property
    def overlap(self) -> float | None:
        """How far the evidence repeats the card's own corpus, if so far that the figure is not ranked."""
        return None if self.audit is None or self.audit.is_independent else self.audit.overlap

    @property
    def tone(self) -> Tone | Literal["none"]:
        """How good the value is; none for a figure that says nothing, since its evidence is the card's own corpus."""
        return "none" if self.estimate is None or self.overlap is not None else self.estimate.tone

    @property
    def not_covered(self) -> float | None:
        """The share of the documents that the evidence does not cover, in [0, 1]; None: unknown."""
        if self.audit is not None:
            return None if self.audit.coverage is None else 1 - self.audit.coverage
        if self.figure is None or not self.figure.scores:
            return None
        return self.figure.unknown / (self.figure.unknown + len(self.figure.scores))


def load_trust(
    hub: HubServices, versions: Mapping[int, Version], *, earlier: bool = True
) -> dict[int, Trust]:
    """Return the factuality of versions by key, which is the id of their repository.

    `earlier`: a version without an audit shows that of the newest version before it which has one, as rankings do.
    """
    # The version and the audit that each figure is of.
    unmeasured = [
        key for key, row in versions.items() if row.number > 1 and not _is_independent(row.latest_audit)
    ]
    older = card_versions.find_measured(hub.database, unmeasured) if earlier and unmeasured else {}
    chosen = {key: older.get(key, row) for key, row in versions.items()}
    audits = {key: audit for key, row in chosen.items() if (audit := row.latest_audit) is not None}
    records = hub.registry.audits.records(audit.id for audit in audits.values()) if audits else {}
    # What the other versions declare, with the samples of their exams.
    declaring = [row for row in versions.values() if row.declared_factuality is not None]
    exams = card_versions.find_exams(hub.database, [row.id for row in declaring]) if declaring else {}
    trust = {}
    for key, newest in versions.items():
        declared = declared_factuality(hub.blobs, newest, exams.get(newest.id))
        row, audit = chosen[key], audits.get(key)
        if audit is None:
            figure = None if declared is None else MeasuredFigure(declared)
            trust[key] = Trust(figure, newest.number, newest.number)
        else:
            record = records.get(audit.id, "")
            figure = read_audit(audit, record)
            trust[key] = Trust(figure, row.number, newest.number, audit, _count_asked(record), declared)
    return trust


def declared_factuality(blobs: Blobs, version: Version, exam: str | None) -> ScoreEstimate | None:
    """Return the factuality that a version declares, with the sample of its exam, a blob; None if it declares none."""
    if version.declared_factuality is None:
        return None
    examined = None if exam is None else _read_declared(blobs, exam)
    # The column is what ranks the version; an exam may have changed in a repository, but not in a version.
    if examined is None or abs(examined.value - version.declared_factuality) > 0.001:
        return ScoreEstimate(version.declared_factuality)
    return examined


def find_recall(hub: HubServices, version: Version) -> tuple[ScoreEstimate, AuditRow] | None:
    """Return the recall of a version by the latest exam of this hub, with that exam; None without one."""
    exams = [each for each in version.audits if each.kind == EXAM_FIGURES and each.recall is not None]
    if not exams:
        return None
    record = hub.registry.audits.records([exams[-1].id]).get(exams[-1].id, "")
    figure = read_audit(exams[-1], record, "recall")
    return None if figure is None else (figure.estimate, exams[-1])


def measured_estimates(hub: HubServices, versions: Sequence[Version]) -> dict[int, ScoreEstimate]:
    """Return the factuality that audits of this hub measured, by the number of the version."""
    audits = {row.number: audit for row in versions if (audit := row.latest_audit) is not None}
    records = hub.registry.audits.records(audit.id for audit in audits.values()) if audits else {}
    figures = {number: read_audit(audit, records.get(audit.id, "")) for number, audit in audits.items()}
    return {number: figure.estimate for number, figure in figures.items() if figure is not None}


@lru_cache(maxsize=4096)
def _read_declared(blobs: Blobs, sha256: str) -> ScoreEstimate | None:
    """Return the factuality of an exam; None if it can't be read. Blobs do not change."""
    try:
        with blobs.open(sha256) as stream:
            text = stream.read(LARGEST + 1)
        figure = read_figure(json.loads(text), "factuality") if len(text) <= LARGEST else None
    except (KcardError, ValueError, RecursionError):
        return None
    return None if figure is None else figure.estimate


def _is_independent(audit: AuditRow | None) -> bool:
    return audit is not None and audit.is_independent


def _count_asked(record: str) -> int | None:
    """Return the number of questions of an audit, by its record."""
    try:
        count = json.loads(record)["asked"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return count if isinstance(count, int) else None
