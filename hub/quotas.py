"""Quotas of namespaces.

A quota is charged for three things:

- committed bytes: the distinct files of all commits, and the trees of the commits. A file in ten commits counts once,
  and one that was deleted from main still counts, since its commit can be downloaded.
- uploads that are in no commit yet
- reservations: uploads in progress, and parts of files

The column `accounts.used` holds the committed bytes. Whoever writes or deletes holdings or commits updates it in the
same transaction, by the functions `count_…` and `discount_…`, so that it is always the exact sum.
"""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    and_,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from kcard.hub.db.models import accounts, commits, holdings, now, repositories, reservations, uploads
from kcard.hub.db.session import Database
from kcard.hub.errors import NotFound, TooLarge

__all__ = [
    "LIFETIME",
    "Reservations",
    "add_committed",
    "charged_bytes",
    "committed_by_account",
    "committed_bytes",
    "count_blobs",
    "count_tree",
    "discount_blobs",
    "discount_repository",
    "find_owner",
    "find_quota",
    "recount",
    "reduce_reservation",
    "remaining_quota",
    "require_owner",
    "require_quota",
    "transfer_repository",
]


# What an account may store, and what it is charged for.


def find_quota(connection: Connection, account_id: int, default: int | None) -> int | None:
    """Return the account's quota in bytes, or `default` if it has none of its own; None: no limit."""
    own = connection.scalar(select(accounts.c.quota).where(accounts.c.id == account_id))
    return default if own is None else int(own)


def remaining_quota(connection: Connection, account_id: int, default: int | None) -> int | None:
    """Return the unused bytes of the account's quota; None: no limit."""
    quota = find_quota(connection, account_id, default)
    return None if quota is None else quota - charged_bytes(connection, account_id)


def require_quota(connection: Connection, account_id: int, default: int | None = None, more: int = 0) -> None:
    """Raise TooLarge if the account exceeds its quota, or would with `more` bytes.

    Call it in the transaction that writes what is charged, so that the error rolls it back.
    """
    quota = find_quota(connection, account_id, default)
    if quota is None:
        return
    total = charged_bytes(connection, account_id) + more
    if total > quota:
        name = connection.scalar(select(accounts.c.name).where(accounts.c.id == account_id))
        raise TooLarge(
            f"quota of {name} exceeded: {total} of {quota} bytes; delete repositories, or ask an administrator of this "
            "hub for a larger quota"
        )


def charged_bytes(connection: Connection, account_id: int) -> int:
    """Return the bytes that the account's quota is charged for."""
    committed = select(holdings.c.sha256).where(
        holdings.c.namespace_id == account_id, holdings.c.sha256 == uploads.c.sha256
    )
    pending = select(func.coalesce(func.sum(uploads.c.size), 0)).where(
        uploads.c.namespace_id == account_id, ~committed.exists()
    )
    live = or_(reservations.c.expires.is_(None), reservations.c.expires > now())
    reserved = select(func.coalesce(func.sum(reservations.c.size), 0)).where(
        reservations.c.namespace_id == account_id, live
    )
    both = select(pending.scalar_subquery(), reserved.scalar_subquery())
    return committed_bytes(connection, account_id) + sum(map(int, connection.execute(both).one()))


def committed_bytes(connection: Connection, account_id: int) -> int:
    """Return the committed bytes in an account's repositories."""
    return int(connection.execute(select(accounts.c.used).where(accounts.c.id == account_id)).scalar_one())


def committed_by_account(connection: Connection) -> dict[int, int]:
    """Return the committed bytes of every account, by its id."""
    return dict(connection.execute(select(accounts.c.id, accounts.c.used)).tuples().all())


# Reservations: bytes that a quota is charged for before they are received.
#
# A reservation ends when its upload is stored or fails. It expires soon if nobody renews it, as after a crash.

LIFETIME = timedelta(minutes=2)


class Reservations:
    """The reservations of a hub. `quota`: the default quota of a namespace in bytes."""

    def __init__(self, database: Database, *, quota: int | None = None) -> None:
        self._database, self._quota = database, quota

    def reserve(self, repository_id: int, size: int) -> int | None:
        """Reserve bytes for LIFETIME and return the id; None if the namespace has no quota. Raises TooLarge."""
        with self._database.read() as connection:
            if find_quota(connection, require_owner(connection, repository_id), self._quota) is None:
                return None
        with self._database.write() as connection:
            owner = require_owner(connection, repository_id)
            connection.execute(delete(reservations).where(reservations.c.expires < now()))
            require_quota(connection, owner, self._quota, more=size)
            row = {"namespace_id": owner, "size": size, "expires": now() + LIFETIME}
            new = insert(reservations).values(row).returning(reservations.c.id)
            return int(connection.execute(new).scalar_one())

    def renew(self, reservation: int) -> None:
        """Extend a reservation to LIFETIME from now."""
        here = (reservations.c.id == reservation, reservations.c.upload.is_(None))
        with self._database.write() as connection:
            connection.execute(update(reservations).where(*here).values(expires=now() + LIFETIME))

    def release(self, reservation: int) -> None:
        """End a reservation, unless it has become that of a stored part."""
        here = (reservations.c.id == reservation, reservations.c.upload.is_(None))
        with self._database.write() as connection:
            connection.execute(delete(reservations).where(*here))

    def remaining(self, repository_id: int) -> int | None:
        """Return the unused bytes of the quota of the repository's namespace; None: no limit."""
        with self._database.read() as connection:
            return remaining_quota(connection, require_owner(connection, repository_id), self._quota)


def reduce_reservation(connection: Connection, reservation: int, size: int) -> None:
    """Take bytes from a reservation, in the transaction that charges for them as stored."""
    here = (reservations.c.id == reservation, reservations.c.upload.is_(None))
    connection.execute(update(reservations).where(*here).values(size=reservations.c.size - size))


def require_owner(connection: Connection, repository_id: int) -> int:
    """Return the account whose namespace contains the repository. Raises NotFound if the repository was deleted."""
    owner = connection.scalar(select(repositories.c.namespace_id).where(repositories.c.id == repository_id))
    if owner is None:
        raise NotFound("repository", "the repository of this upload was deleted")
    return int(owner)


# Updates of the committed bytes.


def find_owner(connection: Connection, repository_id: int) -> int:
    """Return the account whose namespace contains the repository, which must exist."""
    here = select(repositories.c.namespace_id).where(repositories.c.id == repository_id)
    return int(connection.execute(here).scalar_one())


def add_committed(connection: Connection, account_id: int, size: int) -> None:
    """Add to an account's committed bytes; a negative size subtracts."""
    here = accounts.c.id == account_id
    connection.execute(update(accounts).where(here).values(used=accounts.c.used + size))


def count_tree(connection: Connection, repository_id: int, size: int) -> None:
    """Count the stored tree of a new commit; a negative size: of a deleted one."""
    here = repositories.c.id == repository_id
    connection.execute(update(repositories).where(here).values(tree_bytes=repositories.c.tree_bytes + size))
    add_committed(connection, find_owner(connection, repository_id), size)


def count_blobs(connection: Connection, repository_id: int, sha256s: Collection[str]) -> None:
    """Count blobs that were added to the repository."""
    owner = find_owner(connection, repository_id)
    add_committed(connection, owner, _exclusive_bytes(connection, repository_id, owner, sha256s))


def discount_blobs(connection: Connection, repository_id: int, sha256s: Collection[str]) -> None:
    """Stop counting blobs that are about to be removed from the repository."""
    owner = find_owner(connection, repository_id)
    add_committed(connection, owner, -_exclusive_bytes(connection, repository_id, owner, sha256s))


def discount_repository(connection: Connection, repository_id: int) -> None:
    """Stop counting a repository that is about to be deleted."""
    owner = find_owner(connection, repository_id)
    add_committed(connection, owner, -_repository_bytes(connection, repository_id, owner))


def transfer_repository(connection: Connection, repository_id: int, to: int) -> None:
    """Count a repository for the account that is about to become its owner."""
    discount_repository(connection, repository_id)
    here = holdings.c.repository_id == repository_id
    connection.execute(update(holdings).where(here).values(namespace_id=to))
    add_committed(connection, to, _repository_bytes(connection, repository_id, to))


def recount(connection: Connection) -> None:
    """Count everything again, for a hub whose counters can't be trusted."""
    # The trees of each repository.
    stored_bytes: ColumnElement[int] = func.length(cast(commits.c.tree, LargeBinary))
    if connection.dialect.name == "postgresql":  # SQLite's length counts characters of text
        stored_bytes = func.octet_length(commits.c.tree)
    trees = select(func.coalesce(func.sum(stored_bytes), 0)).where(
        commits.c.repository_id == repositories.c.id
    )
    connection.execute(update(repositories).values(tree_bytes=trees.scalar_subquery()))
    # The owner of each holding.
    owner = select(repositories.c.namespace_id).where(repositories.c.id == holdings.c.repository_id)
    connection.execute(update(holdings).values(namespace_id=owner.scalar_subquery()))
    # The sum of both for each account.
    blobs = select(holdings.c.namespace_id, holdings.c.sha256, holdings.c.size).distinct().subquery()
    sizes = select(blobs.c.namespace_id, func.sum(blobs.c.size)).group_by(blobs.c.namespace_id)
    tree_sizes = select(repositories.c.namespace_id, func.sum(repositories.c.tree_bytes))
    connection.execute(update(accounts).values(used=0))
    for query in (sizes, tree_sizes.group_by(repositories.c.namespace_id)):
        for account, size in connection.execute(query).tuples().all():
            add_committed(connection, account, int(size))


def _repository_bytes(connection: Connection, repository_id: int, owner: int) -> int:
    """Return the bytes of the repository's trees, and of its blobs that no other repository of the owner holds."""
    here = select(repositories.c.tree_bytes).where(repositories.c.id == repository_id)
    tree_bytes = int(connection.execute(here).scalar_one())
    return tree_bytes + _exclusive_bytes(connection, repository_id, owner)


def _exclusive_bytes(
    connection: Connection, repository_id: int, owner: int, sha256s: Collection[str] | None = None
) -> int:
    """Return the bytes of (some of) the repository's blobs that no other repository of the owner holds."""
    others = holdings.alias()
    elsewhere = select(others.c.sha256).where(
        others.c.namespace_id == owner,
        others.c.sha256 == holdings.c.sha256,
        others.c.repository_id != repository_id,
    )
    mine: ColumnElement[bool] = and_(holdings.c.repository_id == repository_id, ~elsewhere.exists())
    if sha256s is not None:
        mine = and_(mine, holdings.c.sha256.in_(sha256s))
    return int(connection.scalar(select(func.coalesce(func.sum(holdings.c.size), 0)).where(mine)) or 0)
