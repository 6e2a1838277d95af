"""Reads the verified figures of versions from their audits."""

from collections.abc import Collection, Iterable
from typing import Any, Literal, TypeAlias

from sqlalchemy import Connection, Row, ScalarSelect, Select, select

from kcard.hub.records.repository_tables import audits, versions
from kcard.hub.records.utc import utc
from kcard.hub.repositories.figures import Verified

__all__ = ["AUDIT", "EXAM", "AuditKind", "audited", "verified"]

AuditKind: TypeAlias = Literal["audit", "exam"]
AUDIT: AuditKind = "audit"
EXAM: AuditKind = "exam"
MOST_NAMED = 500  # versions from which reading all audits is faster


def verified(connection: Connection, wanted: Collection[int]) -> dict[int, Verified]:
    """The verified figures of these versions, by id; versions without any are omitted."""
    if not wanted:
        return {}
    query = _rows()
    if len(wanted) <= MOST_NAMED:
        query = query.where(audits.c.version_id.in_(wanted))
    found: dict[int, list[Row[Any]]] = {}
    for row in connection.execute(query):
        found.setdefault(row.version_id, []).append(row)
    return {id_: _verified(rows) for id_, rows in found.items()}


def audited() -> ScalarSelect[float]:
    """SQL: the factuality of a row of `versions` by the latest audit that measured it."""
    measured = (
        audits.c.version_id == versions.c.id,
        audits.c.kind == AUDIT,
        audits.c.factuality.is_not(None),
    )
    newest = select(audits.c.factuality).where(*measured).order_by(audits.c.id.desc()).limit(1)
    return newest.scalar_subquery()


def _rows() -> Select[Any]:
    """The audits of all versions, oldest first."""
    columns = [column for column in audits.c if column.name != "record"]
    return select(*columns).order_by(audits.c.id)


def _verified(rows: Iterable[Row[Any]]) -> Verified:
    rows = [*rows]
    measured = _latest(rows, AUDIT, "factuality")
    faithful = _latest(rows, AUDIT, "faithfulness") or _latest(rows, EXAM, "faithfulness")
    return Verified(
        at=utc(rows[-1].taken),
        recall=getattr(_latest(rows, EXAM, "recall"), "recall", None),
        faithfulness=getattr(faithful, "faithfulness", None),
        factuality=getattr(measured, "factuality", None),
        audit=getattr(measured, "id", None),
        taken=None if measured is None else utc(measured.taken),
        evidence=getattr(measured, "evidence", None),
        evidence_sha256=getattr(measured, "evidence_sha256", None),
        checker=getattr(measured, "checker", None),
        released=getattr(measured, "released", None) is not None,
        author=rows[-1].author,
        kcard=rows[-1].kcard,
    )


def _latest(rows: Iterable[Row[Any]], kind: AuditKind, figure: str) -> Row[Any] | None:
    """The latest audit of the kind that measured the figure."""
    matching = [row for row in rows if row.kind == kind and getattr(row, figure) is not None]
    return matching[-1] if matching else None
