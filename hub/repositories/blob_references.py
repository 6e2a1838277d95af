"""Which blobs the database names, and so the hub needs: those of versions, of repositories, of recent uploads."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Connection, delete, select, union

from kcard.hub.records.repository_tables import holdings, uploads, versions

__all__ = ["GRACE", "existing", "expire", "kept", "named"]

# For as long an upload that no commit names is kept: a client may stop half-way and go on the next day.
GRACE = timedelta(hours=24)


def kept(connection: Connection) -> dict[str, int]:
    """sha256 and size of every blob that a repository has."""
    return dict(connection.execute(select(holdings.c.sha256, holdings.c.size).distinct()).tuples().all())


def named(connection: Connection, candidates: Collection[str]) -> set[str]:
    """Those of a few hundred sha256 that anything names; an upload that was not committed in time is nothing."""
    rows = union(
        select(holdings.c.sha256).where(holdings.c.sha256.in_(candidates)),
        select(uploads.c.sha256).where(uploads.c.sha256.in_(candidates), ~_expired()),
    )
    return set(connection.scalars(rows))


def existing(connection: Connection, candidates: Collection[str]) -> set[str]:
    """Those of a few hundred sha256 that are a version's."""
    return set(connection.scalars(select(versions.c.sha256).where(versions.c.sha256.in_(candidates))))


def expire(connection: Connection) -> None:
    """Forget uploads that were not committed in time."""
    connection.execute(delete(uploads).where(_expired()))


def _expired() -> ColumnElement[bool]:
    return uploads.c.at < datetime.now(UTC) - GRACE
