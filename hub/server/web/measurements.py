"""How far cards can be trusted, as pages show it: figures with their samples, and which version they are of."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kcard.hub import versions as card_versions
from kcard.hub.db.models import AuditRow, Version
from kcard.hub.figures import EXAM_FIGURES, MeasuredFigure, read_audit
from kcard.hub.server.web.exams import ExamView, load_exam
from kcard.hub.services import HubServices
from kcard.hub.storage import Blobs
from kcard.hub.values import ScoreEstimate, Tone

Source: TypeAlias = Literal["measured", "declared"]
BINS = 10  # of a histogram of scores


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
    chosen = dict(versions)
    if earlier:
        unmeasured = []
        for key, version in versions.items():
            audit = version.latest_audit
            if version.number > 1 and (audit is None or not audit.is_independent):
                unmeasured.append(key)
        if unmeasured:
            chosen |= card_versions.find_measured(hub.database, unmeasured)
    records = _read_records(hub, chosen.values())
    # What the newest versions declare, with the samples of their exams.
    declaring = [version.id for version in versions.values() if version.declared_factuality is not None]
    exams = card_versions.find_exams(hub.database, declaring) if declaring else {}
    trust = {}
    for key, newest in versions.items():
        declared = declared_factuality(hub.blobs, newest, exams.get(newest.id))
        audit = chosen[key].latest_audit
        if audit is None:
            figure = None if declared is None else MeasuredFigure(declared)
            trust[key] = Trust(figure, newest.number, newest.number)
        else:
            record = records.get(audit.id, "")
            figure = read_audit(audit, record)
            trust[key] = Trust(
                figure, chosen[key].number, newest.number, audit, _count_asked(record), declared
            )
    return trust


def declared_factuality(blobs: Blobs, version: Version, exam: str | None) -> ScoreEstimate | None:
    """Return the factuality that a version declares, with the sample of its exam, a blob; None if it declares none."""
    if version.declared_factuality is None:
        return None
    view = load_exam(blobs, exam)
    # The column is what ranks the version; an exam may have changed in a repository, but not in a version.
    if (
        view is None
        or view.factuality is None
        or abs(view.factuality.value - version.declared_factuality) > 0.001
    ):
        return ScoreEstimate(version.declared_factuality)
    return view.factuality


def find_recall(hub: HubServices, version: Version) -> tuple[ScoreEstimate, AuditRow] | None:
    """Return the recall of a version by the latest exam of this hub, with that exam; None without one."""
    exams = [each for each in version.audits if each.kind == EXAM_FIGURES and each.recall is not None]
    if not exams:
        return None
    record = hub.registry.audits.records([exams[-1].id]).get(exams[-1].id, "")
    figure = read_audit(exams[-1], record, "recall")
    return None if figure is None else (figure.estimate, exams[-1])


def load_history(
    hub: HubServices, versions: Sequence[Version], *, with_exams: bool
) -> list[tuple[int, dict[str, ScoreEstimate | None]]]:
    """Return the numbers of versions with their figures: declared and measured factuality, and declared recall.

    Versions without any are left out; a single one is no history. `with_exams`: recall, which only exams have, counts.
    """
    records = _read_records(hub, versions)
    history = []
    for version in versions:
        figures: dict[str, ScoreEstimate | None] = {
            "declared": declared_factuality(hub.blobs, version, version.exam),
            "recall": None,
            "measured": None,
        }
        if with_exams:
            exam = load_exam(hub.blobs, version.exam)
            if exam is not None:
                figures["recall"] = exam.recall
        audit = version.latest_audit
        if audit is not None:
            measured = read_audit(audit, records.get(audit.id, ""))
            if measured is not None:
                figures["measured"] = measured.estimate
        if any(figures.values()):
            history.append((version.number, figures))
    if len(history) == 1:
        return []
    return history


def count_scores(exam: ExamView | None) -> list[int]:
    """Return how many documents of an exam have a score in each tenth; empty without scores."""
    if exam is None or exam.figure is None or not exam.figure.scores:
        return []
    counts = [0] * BINS
    for score in exam.figure.scores:
        counts[min(int(score * BINS), BINS - 1)] += 1
    return counts


def _read_records(hub: HubServices, versions: Iterable[Version]) -> Mapping[int, str]:
    """Return the records of the latest audits of versions, by the audit's id."""
    audits = [version.latest_audit for version in versions]
    ids = [audit.id for audit in audits if audit is not None]
    return hub.registry.audits.records(ids) if ids else {}


def _count_asked(record: str) -> int | None:
    """Return the number of questions of an audit, by its record."""
    try:
        count = json.loads(record)["asked"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return count if isinstance(count, int) else None
