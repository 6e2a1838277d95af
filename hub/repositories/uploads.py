"""Uploads of accounts, and the blobs that they may use.

Knowing the sha256 of a blob gives no access to it: an account may use its own recent uploads, and files of repositories
that it may download.
"""

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, exists, func, insert, select, update

from kcard.hub.accounts.identity import Identity
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import holdings, uploads
from kcard.hub.records.utc import now
from kcard.hub.repositories.readable import usable
from kcard.hub.store.blobs import Blobs
from kcard.hub.store.disk import link_or_copy

__all__ = ["Uploads"]


class Uploads:
    """Recent uploads, which gc keeps for a while."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database = database
        self._blobs = blobs

    def store(self, account_id: int, path: Path, sha256: str, size: int) -> None:
        """Store a complete file as the account's upload. `path` is moved."""
        self.store_all(account_id, [(path, sha256, size)])

    def store_all(self, account_id: int, files: Sequence[tuple[Path, str, int]]) -> None:
        """Store complete files (path, sha256, size) as the account's uploads. The paths are moved.

        gc may delete a blob before its row is written, so a hard link is kept until then to store it again.
        """
        for path, sha256, size in files:
            link_or_copy(path, _spare(path))
            self._blobs.place(path, sha256, size)
        with self._database.write() as connection:
            for path, sha256, size in files:
                if not self._blobs.holds(sha256):
                    self._blobs.place(_spare(path), sha256, size)
                _record(connection, account_id, sha256, size)
        for path, _, _ in files:
            _spare(path).unlink(missing_ok=True)

    def record(self, account_id: int, sha256: str, size: int) -> None:
        """Record an upload of an existing blob, or one that the account need not send."""
        with self._database.write() as connection:
            _record(connection, account_id, sha256, size)

    def sent(self, account_id: int, sha256: str) -> int | None:
        """Bytes of a blob that the account uploaded recently; None: no such blob."""
        mine = (uploads.c.account_id == account_id) & (uploads.c.sha256 == sha256)
        with self._database.read() as connection:
            return self._there(connection.scalar(select(uploads.c.size).where(mine)), sha256)

    def usable(self, identity: Identity, sha256: str) -> int | None:
        """Bytes of a blob that the identity uploaded or may download; None: no such blob."""
        with self._database.read() as connection:
            return self._there(usable(connection, identity, [sha256]).get(sha256), sha256)

    def pending(self, account_id: int) -> int:
        """Bytes of the account's uploads that are in no repository."""
        held = exists().where(holdings.c.sha256 == uploads.c.sha256)
        query = select(func.coalesce(func.sum(uploads.c.size), 0)).where(
            uploads.c.account_id == account_id, ~held
        )
        with self._database.read() as connection:
            return int(connection.scalar(query) or 0)

    def _there(self, size: int | None, sha256: str) -> int | None:
        return size if size is not None and self._blobs.holds(sha256) else None


def _spare(path: Path) -> Path:
    return path.with_name(f"{path.name}.spare")


def _record(connection: Connection, account_id: int, sha256: str, size: int) -> None:
    mine = (uploads.c.account_id == account_id) & (uploads.c.sha256 == sha256)
    if not connection.execute(update(uploads).where(mine).values(size=size, at=now())).rowcount:
        connection.execute(insert(uploads).values(account_id=account_id, sha256=sha256, size=size, at=now()))
