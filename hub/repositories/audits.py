"""Audits of published versions. They are append-only and never change the files of a version."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select

from kcard.errors import UnknownCard
from kcard.faults import reach
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import audits, repositories, versions
from kcard.hub.records.utc import now, utc
from kcard.hub.repositories import own_namespace, search_rows, version_rows
from kcard.hub.repositories.versions import Version

__all__ = ["AuditFinding", "Audits", "StoredAudit"]


@dataclass(frozen=True)
class AuditFinding:
    """The result of an audit, as far as the hub reads it.

    checker         name of the checker, and the sha256 of its weights if known
    evidence        independent evidence by name and digest; None without any
    queries         the questions, by name and digest
    faithfulness    mean score against the card's own corpus, in [0, 1]; None if not measured
    factuality      mean score against the independent evidence, in [0, 1]; None if not measured
    record          the whole audit as JSON
    """

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


@dataclass(frozen=True)
class StoredAudit:
    """A finding for a version; `taken` is when it was stored, in UTC."""

    card: str
    version: int
    taken: datetime
    finding: AuditFinding

    @property
    def reference(self) -> str:
        return f"{self.card}@v{self.version}"


class Audits:
    """The audits of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, version: Version, finding: AuditFinding) -> StoredAudit:
        """Store a finding. Raises UnknownCard if the version has been removed."""
        with self._database.write() as connection:
            row = version_rows.key(connection, version)
            if row is None:
                raise UnknownCard(
                    f"{version.reference} was removed during its audit: the result was not stored"
                )
            taken = now()
            connection.execute(insert(audits).values(version_id=row.id, taken=taken, **asdict(finding)))
            search_rows.put(connection, row.repository_id)
            reach("rows.audit")
        return StoredAudit(version.name, version.number, taken, finding)

    def list(self, card: str | None = None) -> "list[StoredAudit]":
        """The audits of all versions of a card, or of all cards, oldest first."""
        joined = audits.join(versions).join(repositories)
        query = select(repositories.c.name, versions.c.number, audits).select_from(joined)
        with self._database.read() as connection:
            if card is not None:
                query = query.where(version_rows.named(connection, card))
            own = own_namespace.find(connection)
            rows = connection.execute(query.order_by(audits.c.id))
            return [_stored(row, own_namespace.bare(own, row.name)) for row in rows]

    def factuality(self, wanted: Sequence[Version]) -> dict[str, float]:
        """Factuality by reference, from the latest audit that measured it; other versions are omitted."""
        columns = (repositories.c.name, versions.c.number, audits.c.factuality)
        query = select(*columns).select_from(audits.join(versions).join(repositories))
        query = query.where(audits.c.factuality.is_not(None)).order_by(audits.c.id)
        with self._database.read() as connection:
            own = own_namespace.find(connection)
            rows = connection.execute(query).tuples()
            latest = {(own_namespace.bare(own, name), number): score for name, number, score in rows}
        measured = {v.reference: latest.get((v.name, v.number)) for v in wanted}
        return {reference: float(score) for reference, score in measured.items() if score is not None}


def _stored(row: Row[Any], card: str) -> StoredAudit:
    values = {name: getattr(row, name) for name in AuditFinding.__dataclass_fields__}
    return StoredAudit(card, row.number, utc(row.taken), AuditFinding(**values))
