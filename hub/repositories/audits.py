"""The hub's own measurements of published versions. They are append-only and never change the files of a version."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from kcard.errors import UnknownCard
from kcard.hub.accounts.events import write
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import audits, repositories, versions
from kcard.hub.records.utc import now, utc
from kcard.hub.repositories import own_namespace, search_rows, version_rows
from kcard.hub.repositories.figure_rows import AUDIT, AuditKind
from kcard.hub.repositories.quarantine import threshold
from kcard.hub.repositories.versions import Version

__all__ = ["AuditFinding", "Audits", "StoredAudit", "store"]


@dataclass(frozen=True)
class AuditFinding:
    """The result of an audit or of the hub's own exam, as far as the hub reads it.

    checker         name of the checker, and the sha256 of its weights if known
    evidence        independent evidence by name and digest; None without any
    queries         the questions, by name and digest
    faithfulness    mean score against the card's own corpus, in [0, 1]; None if not measured
    factuality      mean score against the independent evidence, in [0, 1]; None if not measured
    record          the whole audit or exam as JSON
    kind            audit, which decides about quarantine, or exam
    recall          of the exam, in [0, 1]; None if not measured
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
    kind: AuditKind = AUDIT
    recall: float | None = None


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

    def add(self, version: Version, finding: AuditFinding, *, by: str | None = None) -> StoredAudit:
        """Store a finding. Raises UnknownCard if the version has been removed.

        `by`: the account that took the audit, for the event log; None: the command line.
        """
        with self._database.write() as connection:
            row = version_rows.key(connection, version)
            if row is None:
                raise UnknownCard(
                    f"{version.reference} was removed during its audit: the result was not stored"
                )
            number = store(connection, row.id, version.reference, finding, by)
            taken = utc(connection.execute(select(audits.c.taken).where(audits.c.id == number)).scalar_one())
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


def store(
    connection: Connection,
    version_id: int,
    reference: str,
    finding: AuditFinding,
    by: str | None,
    **detail: object,
) -> int:
    """Write a finding and its events, with more details; returns the number of the audit."""
    values = {"version_id": version_id, "taken": now(), **asdict(finding)}
    number = int(connection.execute(insert(audits).values(values).returning(audits.c.id)).scalar_one())
    owner = select(versions.c.repository_id).where(versions.c.id == version_id)
    search_rows.put(connection, connection.execute(owner).scalar_one())
    found = {key: getattr(finding, key) for key in ("recall", "faithfulness", "factuality", "evidence")}
    write(connection, by, "card.measured", reference, audit=number, kind=finding.kind, **found, **detail)
    limit, score = threshold(connection), finding.factuality
    if finding.kind == AUDIT and limit is not None and score is not None and score < limit:
        why = {"factuality": score, "threshold": limit, "evidence": finding.evidence}
        write(connection, by, "card.quarantined", reference, audit=number, **why)
    return number


def _stored(row: Row[Any], card: str) -> StoredAudit:
    values = {name: getattr(row, name) for name in AuditFinding.__dataclass_fields__}
    return StoredAudit(card, row.number, utc(row.taken), AuditFinding(**values))
