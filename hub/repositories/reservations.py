"""Reservations: bytes that a quota is charged for before they are received.

A reservation ends when its upload is stored or fails. It expires soon if nobody renews it, as after a crash.
"""

from datetime import timedelta

from sqlalchemy import Connection, delete, insert, select, update

from kcard.hub.accounts import quotas
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import repositories
from kcard.hub.records.upload_tables import reservations
from kcard.hub.records.utc import now
from kcard.hub.refusals import NotThere

__all__ = ["LIFETIME", "Reservations", "owner_of", "settle"]

LIFETIME = timedelta(minutes=2)


class Reservations:
    """The reservations of a hub. `quota`: the default quota of a namespace in bytes."""

    def __init__(self, database: Database, *, quota: int | None = None) -> None:
        self._database, self._quota = database, quota

    def reserve(self, repository_id: int, size: int) -> int | None:
        """Reserve bytes for LIFETIME and return the id; None if the namespace has no quota. Raises TooLarge."""
        with self._database.read() as connection:
            if quotas.limit(connection, owner_of(connection, repository_id), self._quota) is None:
                return None
        with self._database.write() as connection:
            owner = owner_of(connection, repository_id)
            connection.execute(delete(reservations).where(reservations.c.expires < now()))
            quotas.require_quota(connection, owner, self._quota, more=size)
            row = {"namespace_id": owner, "size": size, "expires": now() + LIFETIME}
            made = insert(reservations).values(row).returning(reservations.c.id)
            return int(connection.execute(made).scalar_one())

    def renew(self, reservation: int) -> None:
        """Reserve it for LIFETIME from now on."""
        here = (reservations.c.id == reservation, reservations.c.upload.is_(None))
        with self._database.write() as connection:
            connection.execute(update(reservations).where(*here).values(expires=now() + LIFETIME))

    def release(self, reservation: int) -> None:
        """End a reservation, unless it became that of a stored part."""
        here = (reservations.c.id == reservation, reservations.c.upload.is_(None))
        with self._database.write() as connection:
            connection.execute(delete(reservations).where(*here))

    def remaining(self, repository_id: int) -> int | None:
        """Bytes that the quota of the repository's namespace has left; None: no limit."""
        with self._database.read() as connection:
            return quotas.remaining(connection, owner_of(connection, repository_id), self._quota)


def owner_of(connection: Connection, repository_id: int) -> int:
    """The account whose namespace has the repository. Raises NotThere if it was deleted."""
    found = connection.scalar(select(repositories.c.namespace_id).where(repositories.c.id == repository_id))
    if found is None:
        raise NotThere("repository", "the repository of this upload was deleted")
    return int(found)


def settle(connection: Connection, reservation: int, size: int) -> None:
    """Take bytes from a reservation, in the transaction that charges for them as stored."""
    here = (reservations.c.id == reservation, reservations.c.upload.is_(None))
    connection.execute(update(reservations).where(*here).values(size=reservations.c.size - size))
