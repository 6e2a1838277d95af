"""Figures of versions: self-declared ones from exams, verified ones from audits."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, ScalarSelect, Select, or_, select

from kcard.errors import CardError, HubError, UsageError
from kcard.hub.accounts import Identity
from kcard.hub.db.models import audits, repositories, search, settings, utc, versions
from kcard.hub.db.session import Database
from kcard.hub.permissions import readable
from kcard.hub.values import (
    FLOOR,
    OVERLAP,
    DeclaredFigures,
    Repository,
    VerifiedFigures,
    covers_enough,
    is_independent,
)
from kcard.io import parse
from kcard.manifest import Manifest

__all__ = [
    "AUDIT",
    "COVERAGE",
    "EXAM_FIGURES",
    "EXAM_FILE",
    "THRESHOLD",
    "AuditKind",
    "AuditedFigures",
    "VersionFigures",
    "VersionLink",
    "audited_factuality",
    "check_share",
    "find_version_link",
    "has_independent_evidence",
    "has_weights",
    "list_derived",
    "list_recent",
    "list_verified",
    "list_version_figures",
    "read_exam",
    "read_limits",
    "verified_by_version",
]


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
MOST_QUESTIONS = 10_000


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
    if fault := _find_mean_fault(own.get("recall"), "recall", questions):
        return fault
    right = own["recall"]["mean"] * questions
    if abs(right - round(right)) > questions * ROUNDING:
        return f"a recall of {own['recall']['mean']:g} is not a share of {questions} questions"
    faithfulness = own.get("faithfulness")
    if faithfulness is not None and (fault := _find_scores_fault(faithfulness, "faithfulness")):
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
    if not scores:
        return None if mean is None else f"{name} has a mean without scores"
    if fault := _find_mean_fault(mean, name, len(scores)):
        return fault
    expected, stated = sum(scores) / len(scores), _object(mean)["mean"]
    return None if abs(expected - stated) <= ROUNDING else f"the mean of {name} is not that of its scores"


def _find_mean_fault(figure: object, name: str, count: int) -> str | None:
    """Return why a mean with its interval can't be right."""
    low, mean, high = (_share(_object(figure).get(key)) for key in ("low", "mean", "high"))
    if low is None or mean is None or high is None:
        return f"{name} has no mean with an interval between 0 and 1"
    if not low <= mean <= high or (low == high and count <= MOST_QUESTIONS):
        return f"the interval of {name} can't be right: {low:g} to {high:g} around {mean:g}"
    return None


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _share(value: object) -> float | None:
    """Return the value if it is a number in [0, 1]."""
    number = type(value) in {int, float} and 0 <= value <= 1  # type: ignore[operator]
    return float(value) if number else None  # type: ignore[arg-type]


# The settings by which a hub quarantines cards: a threshold of factuality, and the coverage that evidence needs.

THRESHOLD, COVERAGE = "threshold", "coverage"


def read_limits(connection: Connection) -> tuple[float | None, float]:
    """Return the threshold of factuality, None without one, and the share of a card's documents that evidence must
    cover to quarantine it. Raises HubError for an invalid setting.
    """
    names = settings.c.name.in_((THRESHOLD, COVERAGE))
    rows = connection.execute(select(settings.c.name, settings.c.value).where(names))
    stored = {}
    for name, value in rows:
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
MOST_BY_ID = 500  # versions; for more, reading all audits is faster


def verified_by_version(connection: Connection, ids: Collection[int]) -> dict[int, VerifiedFigures]:
    """Return the verified figures of these versions, by id; versions without any are omitted."""
    if not ids:
        return {}
    # The audits of each version, oldest first.
    columns = [column for column in audits.c if column.name != "record"]
    query = select(*columns).order_by(audits.c.id)
    if len(ids) <= MOST_BY_ID:
        query = query.where(audits.c.version_id.in_(ids))
    by_version: dict[int, list[Row[Any]]] = {}
    for row in connection.execute(query):
        by_version.setdefault(row.version_id, []).append(row)
    _, floor = read_limits(connection)
    verified = {}
    for id_, rows in by_version.items():
        # Factuality is that of the latest audit whose evidence is independent and covers enough.
        independent = [row for row in rows if is_independent(row.overlap)]
        covering = [row for row in independent if covers_enough(row.coverage, floor)]
        figures = (_latest(chosen, AUDIT, "factuality") for chosen in (covering, independent, rows))
        measured = next(filter(None, figures), None)
        faithful = _latest(rows, AUDIT, "faithfulness") or _latest(rows, EXAM_FIGURES, "faithfulness")
        verified[id_] = VerifiedFigures(
            at=utc(rows[-1].taken),
            recall=getattr(_latest(rows, EXAM_FIGURES, "recall"), "recall", None),
            faithfulness=getattr(faithful, "faithfulness", None),
            factuality=getattr(measured, "factuality", None),
            audit=getattr(measured, "id", None),
            taken=None if measured is None else utc(measured.taken),
            evidence=getattr(measured, "evidence", None),
            evidence_sha256=getattr(measured, "evidence_sha256", None),
            checker=getattr(measured, "checker", None),
            coverage=getattr(measured, "coverage", None),
            judged=getattr(measured, "judged", None),
            overlap=getattr(measured, "overlap", None),
            released=getattr(measured, "released", None) is not None,
            author=rows[-1].author,
            kcard=rows[-1].kcard,
        )
    return verified


def audited_factuality() -> ScalarSelect[float]:
    """Return SQL for the factuality of a row of `versions`, by the latest audit with independent evidence."""
    measured = (
        audits.c.version_id == versions.c.id,
        audits.c.kind == AUDIT,
        audits.c.factuality.is_not(None),
        has_independent_evidence(),
    )
    newest = select(audits.c.factuality).where(*measured).order_by(audits.c.id.desc()).limit(1)
    return newest.scalar_subquery()


def has_independent_evidence() -> ColumnElement[bool]:
    """Return SQL for whether an audit's evidence is independent of the card's corpus; unknown overlap counts so."""
    return or_(audits.c.overlap.is_(None), audits.c.overlap < OVERLAP)


def _latest(rows: Iterable[Row[Any]], kind: AuditKind, figure: str) -> Row[Any] | None:
    """Return the latest audit of the kind that measured the figure."""
    matching = [row for row in rows if row.kind == kind and getattr(row, figure) is not None]
    return matching[-1] if matching else None


MOST = 30


@dataclass(frozen=True)
class AuditedFigures:
    """An audit of this hub that measured factuality, in [0, 1]; see Verified for coverage, judged and independent."""

    factuality: float
    faithfulness: float | None
    taken: datetime
    checker: str
    evidence: str | None
    queries: str
    asked: int | None
    coverage: float | None = None
    judged: int | None = None
    independent: bool = True


@dataclass(frozen=True)
class VersionFigures:
    """A version; `declared` is the factuality of its exam, `verified` the latest audit that measured it."""

    number: int
    sha256: str
    commit: str
    published: datetime
    declared: float | None
    verified: AuditedFigures | None
    manifest: Manifest | None

    @property
    def exam(self) -> str | None:
        """The sha256 of its exam."""
        return None if self.manifest is None else self.manifest.files.get(EXAM_FILE)

    @property
    def factuality(self) -> float | None:
        return self.declared if self.verified is None else self.verified.factuality


@dataclass(frozen=True)
class VersionLink:
    """A version of a card of this hub, in a list."""

    card: str
    number: int
    commit: str
    description: str
    domain: str
    published: datetime
    verified: AuditedFigures | None = None


def list_version_figures(database: Database, repository: Repository) -> list[VersionFigures]:
    """Return the newest versions of a repository, at most 30, oldest first."""
    query = select(versions).where(versions.c.repository_id == repository.id)
    with database.read() as connection:
        rows = connection.execute(query.order_by(versions.c.number.desc()).limit(MOST)).all()
        measured = _latest_audits(connection, [row.id for row in rows])
    newest = []
    for row in reversed(rows):
        try:
            manifest = Manifest.from_json(row.manifest)
        except CardError:  # of a newer kcard
            manifest = None
        newest.append(
            VersionFigures(
                row.number,
                row.sha256,
                row.sha,
                utc(row.published),
                row.factuality,
                measured.get(row.id),
                manifest,
            )
        )
    return newest


def find_version_link(database: Database, sha256: str, identity: Identity | None) -> VersionLink | None:
    """Return the version with that manifest, if the identity may read it; None if this hub has none."""
    query = _select_links().where(versions.c.sha256 == sha256, readable(identity)).limit(1)
    with database.read() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else _link(row)


def list_derived(database: Database, sha256: Sequence[str], identity: Identity | None) -> list[VersionLink]:
    """Return the cards whose newest version is an update of one of these versions."""
    query = _select_newest().join(search, search.c.repository_id == repositories.c.id)
    query = query.where(search.c.updates.in_(sha256), readable(identity)).limit(MOST)
    with database.read() as connection:
        return [_link(row) for row in connection.execute(query)]


def list_recent(database: Database, count: int) -> list[VersionLink]:
    """Return the versions that were published last in public repositories, newest first."""
    query = _select_links().where(readable(None)).order_by(versions.c.id.desc()).limit(count)
    with database.read() as connection:
        return [_link(row) for row in connection.execute(query)]


def list_verified(database: Database, cards: Sequence[Repository]) -> list[VersionLink]:
    """Return the newest version of each repository whose factuality an audit measured, in the order given."""
    query = _select_newest().where(versions.c.repository_id.in_([repository.id for repository in cards]))
    with database.read() as connection:
        rows = {row.name: row for row in connection.execute(query)}
        measured = _latest_audits(connection, [row.id for row in rows.values()])
    newest = [rows[repository.name] for repository in cards if repository.name in rows]
    return [_link(row, measured[row.id]) for row in newest if row.id in measured]


def _latest_audits(connection: Connection, ids: Sequence[int]) -> dict[int, AuditedFigures]:
    """Return the latest audit that measured factuality by version id, if possible with independent evidence."""
    measured = (audits.c.kind == AUDIT, audits.c.factuality.is_not(None))
    query = select(audits).where(audits.c.version_id.in_(ids), *measured)
    rows = sorted(
        connection.execute(query.order_by(audits.c.id)), key=lambda row: is_independent(row.overlap)
    )
    by_version = {}
    for row in rows:
        try:
            audit = json.loads(row.record)
        except ValueError:
            audit = None
        count = audit.get("asked") if isinstance(audit, Mapping) else None
        by_version[row.version_id] = AuditedFigures(
            row.factuality,
            row.faithfulness,
            utc(row.taken),
            row.checker,
            row.evidence,
            row.queries,
            count if isinstance(count, int) else None,
            row.coverage,
            row.judged,
            is_independent(row.overlap),
        )
    return by_version


def _select_links() -> Select[Any]:
    columns = (versions.c.id, versions.c.number, versions.c.sha, versions.c.description, versions.c.domain)
    return select(*columns, versions.c.published, repositories.c.name).join_from(versions, repositories)


def _select_newest() -> Select[Any]:
    """Return the query for the newest version of each repository."""
    other = versions.alias()
    newest = select(other.c.number).where(other.c.repository_id == versions.c.repository_id)
    first = newest.order_by(other.c.number.desc()).limit(1).scalar_subquery()
    return _select_links().where(versions.c.number == first)


def _link(row: Row[Any], verified: AuditedFigures | None = None) -> VersionLink:
    return VersionLink(
        row.name, row.number, row.sha, row.description, row.domain, utc(row.published), verified
    )
