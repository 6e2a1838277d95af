"""Reads the versions of a hub."""

from sqlalchemy import ColumnElement, exists, or_, select

from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import repositories, versions
from kcard.hub.repositories import own_namespace, version_rows
from kcard.hub.repositories.versions import Version

__all__ = ["Catalogue"]


class Catalogue:
    """The versions of a hub."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def names(self) -> list[str]:
        """Every card's name, sorted."""
        query = select(repositories.c.name).where(
            exists().where(versions.c.repository_id == repositories.c.id)
        )
        with self._database.read() as connection:
            own = own_namespace.find(connection)
            return sorted(own_namespace.bare(own, name) for name in connection.scalars(query))

    def versions(self, name: str | None = None) -> list[Version]:
        """Every version of a card, or of all cards, oldest first."""
        with self._database.read() as connection:
            return version_rows.find(
                connection, *([] if name is None else [version_rows.named(connection, name)])
            )

    def newest(self, domain: str | None = None, base: str | None = None) -> list[Version]:
        """The newest version of every card, if it is in the domain subtree and has the base."""
        conditions: list[ColumnElement[bool]] = [version_rows.newest()]
        if domain is not None:
            inside = versions.c.domain.startswith(domain + "/", autoescape=True)
            conditions.append(or_(versions.c.domain == domain, inside))
        if base is not None:
            short = versions.c.base.endswith("/" + base, autoescape=True)
            conditions.append(or_(versions.c.base == base, short))
        with self._database.read() as connection:
            return version_rows.find(connection, *conditions)
