"""Rows of a shared hub, put in by hand."""

from sqlalchemy import func, insert, select

from kcard.hub import quotas
from kcard.hub.db.models import Account, Holding, Repository, Upload, now
from kcard.hub.db.session import Database

__all__ = ["counted", "hold", "pending_bytes"]


def counted(database: Database) -> dict[str, int]:
    """The committed bytes of each account, by the counter, which must be the sum."""
    counters = select(Account.name, Account.used)
    of_holdings = select(Holding.repository_id, Holding.sha256, Holding.namespace_id)
    trees = select(Repository.id, Repository.tree_bytes)
    with database.write() as connection:
        before = [set(connection.execute(query).tuples()) for query in (counters, trees, of_holdings)]
        quotas.recount(connection)
        after = [set(connection.execute(query).tuples()) for query in (counters, trees, of_holdings)]
    assert before == after
    return dict(before[0])


def pending_bytes(database: Database, account_id: int) -> int:
    """The bytes of the account's uploads that are in no commit."""
    with database.read() as session:
        return session.scalar(select(func.sum(Upload.size)).where(Upload.account_id == account_id)) or 0


def hold(database: Database, owner: int, name: str, *files: tuple[str, int]) -> None:
    """A repository whose commits name these blobs."""
    row = {
        "type": "model",
        "namespace_id": owner,
        "name": name,
        "folded": name.lower(),
        "visibility": "public",
        "gated": "no",
        "created": now(),
        "modified": now(),
        "downloads": 0,
        "likes": 0,
        "card": {},
        "tags": [],
        "size": 0,
        "newest": 0,
    }
    with database.write() as connection:
        repository_id = connection.execute(
            insert(Repository).values(row).returning(Repository.id)
        ).scalar_one()
        for sha256, size in files:
            connection.execute(insert(Holding).values(repository_id=repository_id, sha256=sha256, size=size))
        quotas.recount(connection)
