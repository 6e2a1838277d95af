"""Audits of published versions: rows that are only ever added. The files of a version stay as they are."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, insert, select

from kcard.errors import UnknownCard
from kcard.faults import reach
from kcard.hub.database import Database
from kcard.hub.tables import audits, cards, versions
from kcard.hub.versions import Version

__all__ = ["AuditFinding", "Audits", "StoredAudit"]


@dataclass(frozen=True)
class AuditFinding:
    """What an audit found, as far as the hub reads it.

    checker         who judged, and the sha256 of its weights, where it names one
    evidence        the independent evidence by name and digest; None without any
    queries         what was asked, by name and digest
    faithfulness    mean score against the card's own corpus, in [0, 1]; None where not measured
    factuality      mean score against the independent evidence, in [0, 1]; None where not measured
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
    """A finding, the version that it is about, and when it was stored, in UTC."""

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
        """Keep a finding, whole or not at all; UnknownCard where the version was removed meanwhile."""
        with self._database.write() as connection:
            same = (cards.c.name == version.name, versions.c.sha256 == version.sha256)
            found = connection.scalar(select(versions.c.id).join_from(versions, cards).where(*same))
            if found is None:
                raise UnknownCard(f"{version.reference} was removed while it was audited: nothing is stored")
            taken = datetime.now(UTC)
            connection.execute(insert(audits).values(version_id=found, taken=taken, **asdict(finding)))
            reach("rows.audit")
        return StoredAudit(version.name, version.number, taken, finding)

    def list(self, card: str | None = None) -> "list[StoredAudit]":
        """The audits of every version of a card, or of all cards, in the order in which they were stored."""
        query = select(cards.c.name, versions.c.number, audits).select_from(audits.join(versions).join(cards))
        if card is not None:
            query = query.where(cards.c.name == card)
        with self._database.read() as connection:
            return [_stored(row) for row in connection.execute(query.order_by(audits.c.id))]

    def factuality(self, wanted: Sequence[Version]) -> dict[str, float]:
        """By reference, what the latest audit that measured it found; versions without one are left out."""
        references = {version.reference for version in wanted}
        columns = (cards.c.name, versions.c.number, audits.c.factuality)
        query = select(*columns).select_from(audits.join(versions).join(cards))
        with self._database.read() as connection:
            rows = connection.execute(
                query.where(audits.c.factuality.is_not(None)).order_by(audits.c.id)
            ).tuples()
            found = {f"{name}@v{number}": float(score) for name, number, score in rows}
        return {reference: score for reference, score in found.items() if reference in references}


def _stored(row: Row[Any]) -> StoredAudit:
    # SQLite gives back a time without its zone, PostgreSQL one in the session's.
    taken = row.taken.replace(tzinfo=UTC) if row.taken.tzinfo is None else row.taken.astimezone(UTC)
    values = {name: getattr(row, name) for name in AuditFinding.__dataclass_fields__}
    return StoredAudit(row.name, row.number, taken, AuditFinding(**values))
