"""Audits: verified results of published versions, measured by operators of the hub with `kcard audit`.

They are append-only and never change the files of a version.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import exists, select

from kcard.errors import UnknownCard
from kcard.hub import search_index
from kcard.hub.accounts import bare_name, write_event
from kcard.hub.db.models import AuditRow, Repository, Version, now
from kcard.hub.db.session import Database
from kcard.hub.figures import AUDIT, AuditKind, read_limits
from kcard.hub.values import covers_enough
from kcard.hub.versions import find_row, is_card
from kcard.manifest import Manifest

# Kinds of cards whose model is not among their files.
ELSEWHERE = ("reference", "llm", "search")
# Repository, number, sha256 of the manifest, commit.
Unverified: TypeAlias = tuple[str, int, str, str]


def is_measurable(manifest: Manifest) -> bool:
    """Return whether the card can be measured without reaching other services or downloading a model."""
    return manifest.kind not in ELSEWHERE and not manifest.asks_elsewhere


@dataclass(frozen=True)
class AuditFinding:
    """The result of an audit or of the hub's own exam, as far as the hub reads it: columns of AuditRow."""

    checker: str
    checker_sha256: str | None
    evidence: str | None
    evidence_sha256: str | None
    queries: str
    queries_sha256: str
    seed: int
    faithfulness: float | None
    factuality: float | None
    record: str
    kind: AuditKind = AUDIT
    recall: float | None = None
    kcard: str | None = None
    coverage: float | None = None
    judged: int | None = None
    overlap: float | None = None


@dataclass(frozen=True)
class StoredAudit:
    """A stored finding about a version: `taken` is the time, in UTC, `author` who measured; None: the command line."""

    card: str
    version: int
    taken: datetime
    finding: AuditFinding
    author: str | None = None

    @property
    def reference(self) -> str:
        return f"{self.card}@v{self.version}"


class Audits:
    """The audits of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, version: Version, finding: AuditFinding, *, by: str | None = None) -> StoredAudit:
        """Store one finding, as `add_all` does."""
        return self.add_all(version, [finding], by=by)[0]

    def add_all(
        self, version: Version, findings: Sequence[AuditFinding], *, by: str | None = None
    ) -> "list[StoredAudit]":
        """Store findings, all or none. Raises UnknownCard if the version has been removed.

        `by`: the account that measured; None: the command line.
        """
        with self._database.write() as session:
            row = find_row(session, version)
            if row is None:
                raise UnknownCard(
                    f"{version.reference} was removed during its audit: the result was not stored"
                )
            stored, reference = [], version.reference
            for finding in findings:
                # The row, and the search index of its card.
                audit = AuditRow(version_id=row.id, taken=now(), author=by, **asdict(finding))
                session.add(audit)
                session.flush()
                search_index.update_rows(session, row.repository_id)
                # The event log: the measurement, and the quarantine that it causes.
                named = ("kind", "recall", "faithfulness", "factuality", "evidence", "coverage", "overlap")
                measurements = {key: getattr(finding, key) for key in named}
                write_event(session, by, "card.measured", reference, audit=audit.id, **measurements)
                (limit, floor), score = read_limits(session), finding.factuality
                counts = audit.is_independent and covers_enough(finding.coverage, floor)
                if (
                    finding.kind == AUDIT
                    and limit is not None
                    and score is not None
                    and score < limit
                    and counts
                ):
                    why = {"factuality": score, "threshold": limit, "evidence": finding.evidence}
                    write_event(session, by, "card.quarantined", reference, audit=audit.id, **why)
                stored.append(StoredAudit(version.name, version.number, audit.taken, finding, by))
            return stored

    def unverified(self, after: int, limit: int) -> tuple[Sequence[Unverified], int | None]:
        """Return a page of measurable versions without a result, oldest first, and where it ends.

        `after`: where the page before ended, 0 for the first one. The end of this page is None if it is the last one.
        """
        measured = exists().where(AuditRow.version_id == Version.id)
        columns = (Version.id, Repository.name, Version.number, Version.sha256, Version.commit)
        query = select(*columns, Version.text).join_from(Version, Repository)
        query = query.where(~measured, Version.id > after).order_by(Version.id).limit(limit)
        with self._database.read() as session:
            rows = session.execute(query).all()
        candidates = [row for row in rows if is_measurable(Manifest.from_json(row.text))]
        page = [(row.name, row.number, row.sha256, row.commit) for row in candidates]
        return page, rows[-1].id if len(rows) == limit else None

    def records(self, ids: Iterable[int]) -> dict[int, str]:
        """Return the whole records of audits as JSON, by the audits' ids."""
        with self._database.read() as session:
            query = select(AuditRow.id, AuditRow.record).where(AuditRow.id.in_([*ids]))
            return {row.id: row.record for row in session.execute(query)}

    def list(self, card: str | None = None) -> "list[StoredAudit]":
        """Return the audits of all versions of a card, or of all cards, oldest first."""
        query = select(Repository.name, Version.number, AuditRow)
        query = query.select_from(AuditRow).join(Version).join(Repository)
        with self._database.read() as session:
            if card is not None:
                query = query.where(is_card(card))
            stored = []
            for name, number, audit in session.execute(query.order_by(AuditRow.id)):
                values = {field.name: getattr(audit, field.name) for field in fields(AuditFinding)}
                finding = AuditFinding(**values)
                stored.append(StoredAudit(bare_name(name), number, audit.taken, finding, audit.author))
            return stored
