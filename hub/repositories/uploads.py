"""Uploads of accounts, and the blobs that they may use.

Knowing the sha256 of a blob gives no access to it: an account may use its own recent uploads, and files of repositories
that it may download.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from kcard.hub.accounts import quotas
from kcard.hub.accounts.identity import Identity
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import uploads
from kcard.hub.records.upload_tables import reservations
from kcard.hub.records.utc import now
from kcard.hub.repositories.readable import usable
from kcard.hub.repositories.reservations import owner_of, settle
from kcard.hub.store.blobs import Blobs

__all__ = ["Uploads", "forget"]


class Uploads:
    """Uploads that are in no commit yet, which gc keeps for a while. `quota`: the default quota of a namespace.

    The quota of the repository that a file is uploaded for is charged; without a repository, nobody's.
    """

    def __init__(self, database: Database, blobs: Blobs, *, quota: int | None = None) -> None:
        self._database, self._blobs, self._quota = database, blobs, quota

    def store(
        self,
        account_id: int,
        path: Path,
        sha256: str,
        size: int,
        *,
        repository_id: int | None = None,
        reservation: int | None = None,
        parts: str | None = None,
    ) -> None:
        """Store a complete file as the account's upload. `path` is moved.

        It is charged instead of its reservation and of its parts. Raises TooLarge.
        """
        self.record(account_id, {sha256: size}, repository_id, reservation=reservation, parts=parts)
        self._blobs.place(path, sha256, size)

    def store_all(
        self,
        account_id: int,
        files: Sequence[tuple[Path, str, int]],
        *,
        repository_id: int | None = None,
    ) -> None:
        """Store complete files (path, sha256, size) as the account's uploads. The paths are moved. Raises TooLarge."""
        self.record(account_id, {sha256: size for _, sha256, size in files}, repository_id)
        for path, sha256, size in files:
            self._blobs.place(path, sha256, size)

    def record(
        self,
        account_id: int,
        sizes: Mapping[str, int],
        repository_id: int | None = None,
        *,
        reservation: int | None = None,
        parts: str | None = None,
    ) -> None:
        """Record uploads by sha256, before their blobs are placed: gc keeps blobs that a row names. Raises TooLarge."""
        with self._database.write() as connection:
            owner = None if repository_id is None else owner_of(connection, repository_id)
            if reservation is not None:
                settle(connection, reservation, sum(sizes.values()))
            if parts is not None:
                connection.execute(delete(reservations).where(reservations.c.upload == parts))
            _record(connection, account_id, sizes, repository_id, owner)
            if owner is not None:
                quotas.require_quota(connection, owner, self._quota)

    def usable(self, identity: Identity, sha256: str) -> int | None:
        """Bytes of a blob that the identity uploaded or may download; None: no such blob."""
        return self.usable_of(identity, [sha256]).get(sha256)

    def usable_of(self, identity: Identity, sha256s: Collection[str]) -> dict[str, int]:
        """Sizes of those blobs that the identity uploaded or may download."""
        with self._database.read() as connection:
            found = usable(connection, identity, sha256s)
        return {sha256: size for sha256, size in found.items() if self._blobs.holds(sha256)}

    def pending(self, account_id: int) -> int:
        """Bytes of the account's uploads that are in no commit."""
        query = select(func.coalesce(func.sum(uploads.c.size), 0)).where(uploads.c.account_id == account_id)
        with self._database.read() as connection:
            return int(connection.scalar(query) or 0)


def forget(connection: Connection, account_id: int, repository_id: int, sha256s: Collection[str]) -> None:
    """Delete the rows of uploads that the account has committed to the repository."""
    here = or_(uploads.c.repository_id == repository_id, uploads.c.repository_id.is_(None))
    mine = (uploads.c.account_id == account_id, here, uploads.c.sha256.in_(sha256s))
    connection.execute(delete(uploads).where(*mine))


def _record(
    connection: Connection,
    account_id: int,
    sizes: Mapping[str, int],
    repository_id: int | None,
    owner: int | None,
) -> None:
    mine = (
        uploads.c.account_id == account_id,
        uploads.c.repository_id.is_not_distinct_from(repository_id),
        uploads.c.sha256.in_(sizes),
    )
    at = now()
    there = set(connection.scalars(update(uploads).where(*mine).values(at=at).returning(uploads.c.sha256)))
    whose = {"account_id": account_id, "repository_id": repository_id, "namespace_id": owner, "at": at}
    if rows := [{"sha256": key, "size": size} | whose for key, size in sizes.items() if key not in there]:
        connection.execute(insert(uploads), rows)
