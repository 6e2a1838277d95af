"""Quotas of namespaces.

Usage is the size of the distinct files in all commits: a file in ten commits counts once, and one that was deleted from
main still counts, since its commit can be downloaded.
"""

from sqlalchemy import Connection, func, select

from kcard.hub.records.account_tables import accounts
from kcard.hub.records.repository_tables import holdings, repositories
from kcard.hub.refusals import TooLarge

__all__ = ["all_used", "limit_and_used", "require_quota", "used"]


def used(connection: Connection, account_id: int) -> int:
    """Bytes in the account's repositories."""
    distinct = (
        select(holdings.c.sha256, holdings.c.size)
        .join(repositories, repositories.c.id == holdings.c.repository_id)
        .where(repositories.c.namespace_id == account_id)
        .distinct()
        .subquery()
    )
    return int(connection.scalar(select(func.coalesce(func.sum(distinct.c.size), 0))) or 0)


def all_used(connection: Connection) -> dict[int, int]:
    """As `used`, by the id of each account that has repositories."""
    distinct = (
        select(repositories.c.namespace_id, holdings.c.sha256, holdings.c.size)
        .join_from(holdings, repositories)
        .distinct()
        .subquery()
    )
    total = func.sum(distinct.c.size)
    rows = connection.execute(select(distinct.c.namespace_id, total).group_by(distinct.c.namespace_id))
    return {owner: int(size) for owner, size in rows}


def limit_and_used(connection: Connection, account_id: int, default: int | None) -> tuple[int | None, int]:
    """The account's quota, or `default` if it has none of its own, and its usage; None and 0: no limit."""
    own = connection.scalar(select(accounts.c.quota).where(accounts.c.id == account_id))
    limit = default if own is None else int(own)
    return limit, 0 if limit is None else used(connection, account_id)


def require_quota(connection: Connection, account_id: int, default: int | None = None, more: int = 0) -> None:
    """Raise TooLarge if the account exceeds its quota, or would with `more` bytes.

    Call it after writing the holdings, in the same transaction, which the error rolls back.
    """
    limit, holds = limit_and_used(connection, account_id, default)
    if limit is not None and holds + more > limit:
        name = connection.scalar(select(accounts.c.name).where(accounts.c.id == account_id))
        raise TooLarge(
            f"quota of {name} exceeded: {holds + more} of {limit} bytes; delete repositories, or ask an administrator "
            "of this hub for a larger quota"
        )
