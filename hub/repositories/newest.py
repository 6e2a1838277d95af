"""The newest versions of many repositories at once."""

from collections.abc import Iterable

from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import versions as version_table
from kcard.hub.repositories import own_namespace, version_rows
from kcard.hub.repositories.values import Repository
from kcard.hub.repositories.versions import Version

__all__ = ["versions"]


def versions(database: Database, repositories: Iterable[Repository]) -> dict[str, Version]:
    """The newest version of each repository that has one, by the repository's name."""
    ids = [repository.id for repository in repositories]
    with database.read() as connection:
        own = own_namespace.find(connection)
        found = version_rows.find(connection, version_rows.newest(), version_table.c.repository_id.in_(ids))
    return {own_namespace.full(own, version.name): version for version in found}
