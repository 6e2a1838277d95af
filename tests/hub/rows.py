"""Rows of a shared hub, put in by hand."""

from sqlalchemy import insert

from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import holdings, repositories
from kcard.hub.records.utc import now

__all__ = ["hold"]


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
        "card": "{}",
        "tags": "[]",
        "size": 0,
        "newest": 0,
    }
    with database.write() as connection:
        found = connection.execute(insert(repositories).values(row).returning(repositories.c.id)).scalar_one()
        for sha256, size in files:
            connection.execute(insert(holdings).values(repository_id=found, sha256=sha256, size=size))
