"""The blobs that the database refers to, which the hub must keep."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Connection, delete, select, union

from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import holdings, uploads, versions
from kcard.hub.store.blobs import Blobs

__all__ = ["GRACE", "discard", "existing", "expire", "kept", "named"]

# How long uncommitted uploads are kept: clients may resume the next day.
GRACE = timedelta(hours=24)
BATCH = 100  # blobs deleted in one transaction, which blocks other writers


def kept(connection: Connection) -> dict[str, int]:
    """sha256 and size of every blob of a repository."""
    return dict(connection.execute(select(holdings.c.sha256, holdings.c.size).distinct()).tuples().all())


def named(connection: Connection, candidates: Collection[str]) -> set[str]:
    """Those of a few hundred sha256 that repositories or unexpired uploads refer to."""
    rows = union(
        select(holdings.c.sha256).where(holdings.c.sha256.in_(candidates)),
        select(uploads.c.sha256).where(uploads.c.sha256.in_(candidates), ~_expired()),
    )
    return set(connection.scalars(rows))


def existing(connection: Connection, candidates: Collection[str]) -> set[str]:
    """Those of a few hundred sha256 that name a version."""
    return set(connection.scalars(select(versions.c.sha256).where(versions.c.sha256.in_(candidates))))


def discard(database: Database, blobs: Blobs, candidates: Sequence[str]) -> None:
    """Delete those blobs that nothing refers to any more."""
    for few in (candidates[at : at + BATCH] for at in range(0, len(candidates), BATCH)):
        with database.write() as connection:  # whoever refers to one waits, and then stores it again
            kept = named(connection, few)
            blobs.delete(*(sha256 for sha256 in few if sha256 not in kept))


def expire(connection: Connection) -> None:
    """Delete expired uploads."""
    connection.execute(delete(uploads).where(_expired()))


def _expired() -> ColumnElement[bool]:
    return uploads.c.at < datetime.now(UTC) - GRACE
