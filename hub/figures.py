"""Figures of versions: self-declared ones from exams, verified ones from audits."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, ScalarSelect, and_, bindparam, or_, select
from sqlalchemy.orm import Session, aliased, defer

from kcard.errors import HubError, UsageError
from kcard.hub.db.models import AuditRow, HubSetting, Repository, Version
from kcard.hub.values import (
    FLOOR,
    OVERLAP,
    POOR,
    DeclaredFigures,
    ScoreEstimate,
    VerifiedFigures,
    covers_enough,
)
from kcard.io import parse
from kcard.manifest import Manifest

# The exam that comes with a card: its self-declared figures, and whether it is plausible.
#
# A plausible exam may still be forged; only the hub's own exam and audits are trusted. docs/evaluation.md has the
# format.

EXAM_FILE = "exam.json"
FORMAT = 2
WEIGHTS = ".safetensors"
SHA256 = re.compile(r"[0-9a-f]{64}")
ROUNDING = 0.0002  # means and scores have four digits
# The largest sample whose interval has a width after rounding.
MAX_ROUNDED_SAMPLE = 10_000


def read_exam(exam: bytes, manifest: Manifest) -> DeclaredFigures:
    """Return the figures of the exam.json of a card. Figures that can't be read are omitted."""
    try:
        document = parse(exam.decode())
    except ValueError as error:
        return DeclaredFigures(fault=f"it is not JSON: {' '.join(str(error).split())[:100]}")
    own = _object(_object(document).get("own"))
    recall, factuality = _object(own.get("recall")), _object(own.get("factuality"))
    mean, fault = _object(factuality.get("mean")), _find_exam_fault(document, manifest) or ""
    # The share of the documents that have a score, if the exam has it.
    coverage = None
    scores, unknown = factuality.get("scores"), factuality.get("unknown", 0)
    if isinstance(scores, list) and scores and type(unknown) is int and unknown >= 0:
        coverage = len(scores) / (len(scores) + unknown)
    return DeclaredFigures(_share(recall.get("mean")), _share(mean.get("mean")), fault, coverage)


def has_weights(manifest: Manifest) -> bool:
    """Return whether the card has a model, or files that are weights, whatever kind of card it claims to be."""
    return manifest.has_model or any(path.lower().endswith(WEIGHTS) for path in manifest.files)


def check_share(value: float, name: str = "threshold", other: str = ", or off") -> float:
    """Return the value. Raises UsageError unless it is in [0, 1]; `other` ends its message."""
    if not 0 <= value <= 1:
        raise UsageError(f"{name} {value:g}: it must be between 0 and 1{other}")
    return value


def _find_exam_fault(exam: object, manifest: Manifest) -> str | None:
    """Return why the exam can't be the card's; None if it can."""
    if not isinstance(exam, dict) or exam.get("format") != FORMAT:
        return f"its format is not {FORMAT}"
    if exam.get("card") != manifest.name:
        return f"it belongs to card {str(exam.get('card'))[:100]!r}, not {manifest.name!r}"
    own = exam.get("own")
    if not isinstance(own, dict):
        return "it has no result on the card's own corpus"
    if own.get("sha256") != manifest.training.corpus_sha256:
        return "its corpus is not the card's"
    # Recall and faithfulness on the card's own corpus.
    questions, digest = own.get("questions"), own.get("questions_sha256")
    if type(questions) is not int or questions < 1:
        return f"questions is {str(questions)[:40]}, but must be 1 or more"
    if not isinstance(digest, str) or not SHA256.fullmatch(digest):
        return "questions_sha256 is not a sha256"
    fault = _find_mean_fault(own.get("recall"), "recall", questions)
    if fault:
        return fault
    right = own["recall"]["mean"] * questions
    if abs(right - round(right)) > questions * ROUNDING:
        return f"a recall of {own['recall']['mean']:g} is not a share of {questions} questions"
    faithfulness = own.get("faithfulness")
    if faithfulness is not None:
        fault = _find_scores_fault(faithfulness, "faithfulness")
        if fault:
            return fault
    # Factuality against independent evidence.
    factuality = own.get("factuality")
    if factuality is None:
        return None
    digest = exam.get("evidence_sha256")
    if not exam.get("evidence") or not isinstance(digest, str) or not SHA256.fullmatch(digest):
        return "it has a factuality, but no name and sha256 of the evidence"
    return _find_scores_fault(factuality, "factuality")


def _find_scores_fault(figure: object, name: str) -> str | None:
    """Return why scores and their mean can't be right."""
    scores = _object(figure).get("scores")
    if not isinstance(scores, list) or any(_share(score) is None for score in scores):
        return f"{name} has no list of scores between 0 and 1"
    mean = _object(figure).get("mean")
    if not scores and mean is None:
        return None
    if not scores:
        return f"{name} has a mean without scores"
    fault = _find_mean_fault(mean, name, len(scores))
    if fault:
        return fault
    expected, stated = sum(scores) / len(scores), _object(mean)["mean"]
    if abs(expected - stated) > ROUNDING:
        return f"the mean of {name} is not that of its scores"
    return None


def _find_mean_fault(figure: object, name: str, count: int) -> str | None:
    """Return why a mean with its interval can't be right."""
    low, mean, high = (_share(_object(figure).get(key)) for key in ("low", "mean", "high"))
    if low is None or mean is None or high is None:
        return f"{name} has no mean with an interval between 0 and 1"
    if not low <= mean <= high or (low == high and count <= MAX_ROUNDED_SAMPLE):
        return f"the interval of {name} can't be right: {low:g} to {high:g} around {mean:g}"
    return None


# A figure with its sample, from the record of an exam or an audit. The record may contain anything.

MAX_SCORES = 100_000


@dataclass(frozen=True)
class MeasuredFigure:
    """A figure of an exam or an audit.

    scores   of its documents, in [0, 1]; empty for recall and lift
    unknown  documents that the evidence does not cover, which have no score
    """

    estimate: ScoreEstimate
    scores: tuple[float, ...] = ()
    unknown: int = 0

    @property
    def refuted(self) -> int:
        """The documents that the evidence covers and rather contradicts than supports."""
        return sum(score < POOR for score in self.scores)


def read_figure(record: object, name: str) -> MeasuredFigure | None:
    """Return a figure of a parsed exam.json, or of the parsed record of an audit; None if it has none.

    `name`: recall, lift, faithfulness or factuality. What can't be read of its sample is unknown.
    """
    document = _object(record)
    own = _object(document["own"]) if "own" in document else document
    figure = _object(own.get(name))
    questions, count = own.get("questions"), None
    if type(questions) is int and questions > 0:
        count = questions
    mean, unknown = figure, 0
    values: tuple[float, ...] = ()
    if isinstance(figure.get("mean"), dict):  # of scores, which are listed
        mean, listed, missing = figure["mean"], figure.get("scores"), figure.get("unknown")
        if isinstance(listed, list):
            scores = map(_share, listed[:MAX_SCORES])
            values = tuple(score for score in scores if score is not None)
        count = len(values) or None
        if type(missing) is int and missing > 0:
            unknown = missing
    least = -1 if name == "lift" else 0
    value, low, high = (_share(mean.get(key), least) for key in ("mean", "low", "high"))
    if value is None:
        return None
    if low is None or high is None or not low <= value <= high:
        low = high = None
    return MeasuredFigure(ScoreEstimate(value, count, low, high), values, unknown)


def read_audit(audit: AuditRow, record: str, name: str = "factuality") -> MeasuredFigure | None:
    """Return a figure of an audit, or of an exam of the hub, with its record; None if it was not measured.

    The columns of the row come first: records of other programs may have no more than these.
    """
    value = getattr(audit, name)
    if value is None:
        return None
    try:
        figure = read_figure(parse(record), name)
    except (ValueError, RecursionError):
        figure = None
    if figure is None or abs(figure.estimate.value - value) > ROUNDING:
        figure = MeasuredFigure(ScoreEstimate(value))
    if name != "factuality" or audit.judged is None:
        return figure
    estimate = replace(figure.estimate, count=audit.judged)
    unknown = figure.unknown
    if audit.coverage:
        unknown = round(audit.judged / audit.coverage) - audit.judged
    return MeasuredFigure(estimate, figure.scores, unknown)


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _share(value: object, least: float = 0) -> float | None:
    """Return the value if it is a number in [least, 1]."""
    number = type(value) in {int, float} and least <= value <= 1  # type: ignore[operator]
    return float(value) if number else None  # type: ignore[arg-type]


# The settings by which a hub quarantines cards: a threshold of factuality, and the coverage that evidence needs.

THRESHOLD, COVERAGE = "threshold", "coverage"
LIMITS = select(HubSetting.name, HubSetting.value).where(HubSetting.name.in_((THRESHOLD, COVERAGE)))


def read_limits(session: Session) -> tuple[float | None, float]:
    """Return the threshold of factuality, None without one, and the share of a card's documents that evidence must
    cover to quarantine it. Raises HubError for an invalid setting.
    """
    stored = {}
    for name, value in session.execute(LIMITS).tuples():
        try:
            stored[name] = check_share(float(value))
        except ValueError:
            remedy = "0.5` (or off)" if name == THRESHOLD else f"--coverage {FLOOR:g}`"
            raise HubError(
                f"invalid {name} {value!r} in the hub: set it again with `kcard hub threshold {remedy}"
            ) from None
    return stored.get(THRESHOLD), stored.get(COVERAGE, FLOOR)


# The verified figures of versions, from their audits.

AuditKind: TypeAlias = Literal["audit", "exam"]
AUDIT: AuditKind = "audit"
EXAM_FIGURES: AuditKind = "exam"
AUDITS_OF = (
    select(AuditRow)
    .where(AuditRow.version_id.in_(bindparam("ids", expanding=True)))
    .order_by(AuditRow.id)
    .options(defer(AuditRow.record, raiseload=True))
)


def load_audits(session: Session, ids: Sequence[int]) -> dict[int, list[AuditRow]]:
    """Return the audits of these versions, without their records, by the version's id, oldest first."""
    audits: dict[int, list[AuditRow]] = {}
    if ids:
        for audit in session.scalars(AUDITS_OF, {"ids": ids}):
            audits.setdefault(audit.version_id, []).append(audit)
    return audits


def verify_figures(audits: Sequence[AuditRow], floor: float) -> VerifiedFigures | None:
    """Return the verified figures of a version with these audits, oldest first; None without any."""
    if not audits:
        return None
    # Factuality is that of the latest audit whose evidence is independent and covers enough.
    independent = [audit for audit in audits if audit.is_independent]
    covering = [audit for audit in independent if covers_enough(audit.coverage, floor)]
    figures = (_latest(chosen, AUDIT, "factuality") for chosen in (covering, independent, audits))
    measured = next(filter(None, figures), None)
    faithful = _latest(audits, AUDIT, "faithfulness") or _latest(audits, EXAM_FIGURES, "faithfulness")
    names = ("factuality", "taken", "evidence", "evidence_sha256", "checker", "coverage", "judged", "overlap")
    return VerifiedFigures(
        at=audits[-1].taken,
        recall=getattr(_latest(audits, EXAM_FIGURES, "recall"), "recall", None),
        faithfulness=getattr(faithful, "faithfulness", None),
        audit=getattr(measured, "id", None),
        released=getattr(measured, "released", None) is not None,
        author=audits[-1].author,
        kcard=audits[-1].kcard,
        **{name: getattr(measured, name, None) for name in names},
    )


def last_audited_factuality() -> ScalarSelect[float]:
    """Return SQL for the factuality by which a row of `repositories` is ranked: that of its newest audited version."""
    version = aliased(Version)
    measured = (version.repository_id == Repository.id, measures_factuality())
    query = select(AuditRow.factuality).join(version, AuditRow.version_id == version.id).where(*measured)
    return query.order_by(version.number.desc(), AuditRow.id.desc()).limit(1).scalar_subquery()


def measures_factuality() -> ColumnElement[bool]:
    """Return SQL for whether an audit measured factuality against evidence that is independent of the card."""
    independent = or_(AuditRow.overlap.is_(None), AuditRow.overlap < OVERLAP)
    return and_(AuditRow.kind == AUDIT, AuditRow.factuality.is_not(None), independent)


def _latest(audits: Sequence[AuditRow], kind: AuditKind, figure: str) -> AuditRow | None:
    """Return the latest audit of the kind that measured the figure."""
    matching = [audit for audit in audits if audit.kind == kind and getattr(audit, figure) is not None]
    return matching[-1] if matching else None
