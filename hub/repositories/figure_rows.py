"""Reads the verified figures of versions from their audits."""

from collections.abc import Collection, Iterable
from typing import Any, Literal, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, ScalarSelect, Select, or_, select

from kcard.hub.records.repository_tables import audits, versions
from kcard.hub.records.utc import utc
from kcard.hub.repositories.figures import OVERLAP, Verified, covers, is_independent
from kcard.hub.repositories.limits import coverage_floor

__all__ = ["AUDIT", "EXAM", "AuditKind", "audited", "independent", "verified"]

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
    floor = coverage_floor(connection)
    return {id_: _verified(rows, floor) for id_, rows in found.items()}


def audited() -> ScalarSelect[float]:
    """SQL: the factuality of a row of `versions` by the latest audit with independent evidence that measured it."""
    measured = (
        audits.c.version_id == versions.c.id,
        audits.c.kind == AUDIT,
        audits.c.factuality.is_not(None),
        independent(),
    )
    newest = select(audits.c.factuality).where(*measured).order_by(audits.c.id.desc()).limit(1)
    return newest.scalar_subquery()


def independent() -> ColumnElement[bool]:
    """SQL: whether the evidence of an audit is independent of the card's corpus; unknown counts as independent."""
    return or_(audits.c.overlap.is_(None), audits.c.overlap < OVERLAP)


def _rows() -> Select[Any]:
    """The audits of all versions, oldest first."""
    columns = [column for column in audits.c if column.name != "record"]
    return select(*columns).order_by(audits.c.id)


def _verified(rows: Iterable[Row[Any]], floor: float) -> Verified:
    """The figures of the latest audits; factuality by the latest with independent evidence that covers enough."""
    rows = [*rows]
    independent = [row for row in rows if is_independent(row.overlap)]
    covering = [row for row in independent if covers(row.coverage, floor)]
    figures = (_latest(chosen, AUDIT, "factuality") for chosen in (covering, independent, rows))
    measured = next(filter(None, figures), None)
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
        coverage=getattr(measured, "coverage", None),
        judged=getattr(measured, "judged", None),
        overlap=getattr(measured, "overlap", None),
        released=getattr(measured, "released", None) is not None,
        author=rows[-1].author,
        kcard=rows[-1].kcard,
    )


def _latest(rows: Iterable[Row[Any]], kind: AuditKind, figure: str) -> Row[Any] | None:
    """The latest audit of the kind that measured the figure."""
    matching = [row for row in rows if row.kind == kind and getattr(row, figure) is not None]
    return matching[-1] if matching else None
