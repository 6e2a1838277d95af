"""Counts the committed bytes of namespaces: their distinct blobs, and the trees of their commits.

Whoever writes or deletes holdings or commits calls these in the same transaction: the counter is always the sum.
"""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, LargeBinary, and_, cast, func, select, update

from kcard.hub.accounts import quotas
from kcard.hub.records.account_tables import accounts
from kcard.hub.records.repository_tables import commits, holdings, repositories

__all__ = ["add_blobs", "add_tree", "move", "namespace", "recount", "remove", "remove_blobs"]


def namespace(connection: Connection, repository_id: int) -> int:
    """The account whose namespace has the repository."""
    here = select(repositories.c.namespace_id).where(repositories.c.id == repository_id)
    return int(connection.execute(here).scalar_one())


def add_tree(connection: Connection, repository_id: int, size: int) -> None:
    """Count the stored tree of a new commit; a negative size: of one that was deleted."""
    here = repositories.c.id == repository_id
    connection.execute(update(repositories).where(here).values(tree_bytes=repositories.c.tree_bytes + size))
    quotas.charge(connection, namespace(connection, repository_id), size)


def add_blobs(connection: Connection, repository_id: int, sha256s: Collection[str]) -> None:
    """Count blobs that the repository holds since now."""
    owner = namespace(connection, repository_id)
    quotas.charge(connection, owner, _exclusive(connection, repository_id, owner, sha256s))


def remove_blobs(connection: Connection, repository_id: int, sha256s: Collection[str]) -> None:
    """Stop counting blobs that the repository is about to drop."""
    owner = namespace(connection, repository_id)
    quotas.charge(connection, owner, -_exclusive(connection, repository_id, owner, sha256s))


def remove(connection: Connection, repository_id: int) -> None:
    """Stop counting a repository that is about to be deleted."""
    quotas.charge(connection, namespace(connection, repository_id), -_size(connection, repository_id))


def move(connection: Connection, repository_id: int, to: int) -> None:
    """Count a repository for the account that its row is about to name."""
    remove(connection, repository_id)
    here = holdings.c.repository_id == repository_id
    connection.execute(update(holdings).where(here).values(namespace_id=to))
    quotas.charge(connection, to, _size(connection, repository_id, to))


def recount(connection: Connection) -> None:
    """Count everything again, as for a hub whose counters are not to be trusted."""
    trees = select(func.coalesce(func.sum(_stored_bytes(connection)), 0)).where(
        commits.c.repository_id == repositories.c.id
    )
    owner = select(repositories.c.namespace_id).where(repositories.c.id == holdings.c.repository_id)
    connection.execute(update(repositories).values(tree_bytes=trees.scalar_subquery()))
    connection.execute(update(holdings).values(namespace_id=owner.scalar_subquery()))
    blobs = select(holdings.c.namespace_id, holdings.c.sha256, holdings.c.size).distinct().subquery()
    sizes = select(blobs.c.namespace_id, func.sum(blobs.c.size)).group_by(blobs.c.namespace_id)
    listed = select(repositories.c.namespace_id, func.sum(repositories.c.tree_bytes))
    connection.execute(update(accounts).values(used=0))
    for query in (sizes, listed.group_by(repositories.c.namespace_id)):
        for account, size in connection.execute(query).tuples().all():
            quotas.charge(connection, account, int(size))


def _size(connection: Connection, repository_id: int, owner: int | None = None) -> int:
    """Bytes that the namespace has only for this repository."""
    owner = namespace(connection, repository_id) if owner is None else owner
    here = select(repositories.c.tree_bytes).where(repositories.c.id == repository_id)
    trees = int(connection.execute(here).scalar_one())
    return trees + _exclusive(connection, repository_id, owner)


def _exclusive(
    connection: Connection, repository_id: int, owner: int, sha256s: Collection[str] | None = None
) -> int:
    """Bytes of the repository's blobs, or of some of them, that no other repository of the namespace holds."""
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


def _stored_bytes(connection: Connection) -> ColumnElement[int]:
    """Bytes of a commit's tree; SQLite's length counts characters of text."""
    if connection.dialect.name == "postgresql":
        return func.octet_length(commits.c.tree)
    return func.length(cast(commits.c.tree, LargeBinary))
