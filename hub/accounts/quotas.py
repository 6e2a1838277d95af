"""Quotas of namespaces.

A quota is charged for three things:

- committed bytes: the distinct files of all commits, and the trees of the commits. A file in ten commits counts once,
  and one that was deleted from main still counts, since its commit can be downloaded. `accounts.used` counts them.
- uploads that are in no commit yet
- reservations: uploads in progress, and parts of files
"""

from sqlalchemy import Connection, func, or_, select, update

from kcard.hub.records.account_tables import accounts
from kcard.hub.records.repository_tables import holdings, uploads
from kcard.hub.records.upload_tables import reservations
from kcard.hub.records.utc import now
from kcard.hub.refusals import TooLarge

__all__ = ["all_used", "charge", "charged", "limit", "remaining", "require_quota", "used"]


def used(connection: Connection, account_id: int) -> int:
    """Committed bytes in the account's repositories."""
    return int(connection.execute(select(accounts.c.used).where(accounts.c.id == account_id)).scalar_one())


def charge(connection: Connection, account_id: int, size: int) -> None:
    """Count committed bytes; a negative size: they were deleted."""
    here = accounts.c.id == account_id
    connection.execute(update(accounts).where(here).values(used=accounts.c.used + size))


def charged(connection: Connection, account_id: int) -> int:
    """Bytes that the account's quota is charged for."""
    held = select(holdings.c.sha256).where(
        holdings.c.namespace_id == account_id, holdings.c.sha256 == uploads.c.sha256
    )
    pending = select(func.coalesce(func.sum(uploads.c.size), 0)).where(
        uploads.c.namespace_id == account_id, ~held.exists()
    )
    live = or_(reservations.c.expires.is_(None), reservations.c.expires > now())
    reserved = select(func.coalesce(func.sum(reservations.c.size), 0)).where(
        reservations.c.namespace_id == account_id, live
    )
    both = select(pending.scalar_subquery(), reserved.scalar_subquery())
    return used(connection, account_id) + sum(map(int, connection.execute(both).one()))


def all_used(connection: Connection) -> dict[int, int]:
    """As `used`, by the id of each account."""
    return dict(connection.execute(select(accounts.c.id, accounts.c.used)).tuples().all())


def limit(connection: Connection, account_id: int, default: int | None) -> int | None:
    """The account's quota in bytes, or `default` if it has none of its own; None: no limit."""
    own = connection.scalar(select(accounts.c.quota).where(accounts.c.id == account_id))
    return default if own is None else int(own)


def remaining(connection: Connection, account_id: int, default: int | None) -> int | None:
    """Bytes that the account's quota has left; None: no limit."""
    most = limit(connection, account_id, default)
    return None if most is None else most - charged(connection, account_id)


def require_quota(connection: Connection, account_id: int, default: int | None = None, more: int = 0) -> None:
    """Raise TooLarge if the account exceeds its quota, or would with `more` bytes.

    Call it in the transaction that writes what is charged, which the error rolls back.
    """
    most = limit(connection, account_id, default)
    if most is None:
        return
    total = charged(connection, account_id) + more
    if total > most:
        name = connection.scalar(select(accounts.c.name).where(accounts.c.id == account_id))
        raise TooLarge(
            f"quota of {name} exceeded: {total} of {most} bytes; delete repositories, or ask an administrator of this "
            "hub for a larger quota"
        )
