"""How many bytes a namespace holds, and how many it may.

Counted are the distinct files that any commit of its repositories names: a file in ten commits counts once, and one
that was deleted from main still counts, because its commit can still be downloaded.
"""

from sqlalchemy import Connection, func, select

from kcard.hub.records.account_tables import accounts
from kcard.hub.records.repository_tables import holdings, repositories
from kcard.hub.refusals import TooLarge

__all__ = ["allowed", "require_room", "used"]


def used(connection: Connection, account_id: int) -> int:
    """Bytes that the account's repositories hold."""
    distinct = (
        select(holdings.c.sha256, holdings.c.size)
        .join(repositories, repositories.c.id == holdings.c.repository_id)
        .where(repositories.c.namespace_id == account_id)
        .distinct()
        .subquery()
    )
    return int(connection.scalar(select(func.coalesce(func.sum(distinct.c.size), 0))) or 0)


def allowed(connection: Connection, account_id: int, default: int | None) -> int | None:
    """Bytes that the account may hold; None: any number. `default` is for accounts that have no quota of their own."""
    own = connection.scalar(select(accounts.c.quota).where(accounts.c.id == account_id))
    return default if own is None else int(own)


def require_room(connection: Connection, account_id: int, default: int | None = None, more: int = 0) -> None:
    """TooLarge where the account holds more than it may, or would with `more` bytes.

    A commit calls it after its rows of holdings are written, in the same transaction, which the refusal undoes.
    """
    limit = allowed(connection, account_id, default)
    if limit is None:
        return
    holds = used(connection, account_id)
    if holds + more > limit:
        name = connection.scalar(select(accounts.c.name).where(accounts.c.id == account_id))
        raise TooLarge(
            f"{name} may hold {limit} bytes and would hold {holds + more}: delete repositories that are no longer "
            "needed, or ask an administrator of this hub for a larger quota"
        )
