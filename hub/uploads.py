"""Multipart uploads, reservations, and the bytes that count against quotas.

Knowing the sha256 of a blob gives no access to it: an account may use its own recent uploads, and files of repositories
that it may download.
"""

import hashlib
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

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

from kcard.hub.accounts import Identity, charge, quota_limit, remaining_quota, require_quota
from kcard.hub.db.models import accounts, commits, holdings, now, repositories, reservations, uploads
from kcard.hub.db.session import Database
from kcard.hub.errors import Conflict, Invalid, NotThere
from kcard.hub.permissions import usable
from kcard.hub.storage import BUFFER, Blobs, discard, sole_use

__all__ = [
    "LIFETIME",
    "Parts",
    "Reservations",
    "Uploads",
    "add_blobs",
    "add_tree",
    "forget",
    "move",
    "namespace",
    "owner_of",
    "recount",
    "remove",
    "remove_blobs",
    "settle",
]


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
            if quota_limit(connection, owner_of(connection, repository_id), self._quota) is None:
                return None
        with self._database.write() as connection:
            owner = owner_of(connection, repository_id)
            connection.execute(delete(reservations).where(reservations.c.expires < now()))
            require_quota(connection, owner, self._quota, more=size)
            row = {"namespace_id": owner, "size": size, "expires": now() + LIFETIME}
            new = insert(reservations).values(row).returning(reservations.c.id)
            return int(connection.execute(new).scalar_one())

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
        """Return the bytes that the quota of the repository's namespace has left; None: no limit."""
        with self._database.read() as connection:
            return remaining_quota(connection, owner_of(connection, repository_id), self._quota)


def owner_of(connection: Connection, repository_id: int) -> int:
    """Return the account whose namespace has the repository. Raises NotThere if it was deleted."""
    owner = connection.scalar(select(repositories.c.namespace_id).where(repositories.c.id == repository_id))
    if owner is None:
        raise NotThere("repository", "the repository of this upload was deleted")
    return int(owner)


def settle(connection: Connection, reservation: int, size: int) -> None:
    """Take bytes from a reservation, in the transaction that charges for them as stored."""
    here = (reservations.c.id == reservation, reservations.c.upload.is_(None))
    connection.execute(update(reservations).where(*here).values(size=reservations.c.size - size))


# Multipart uploads of large files; each request may reach another worker.
#
# Parts are complete files, joined into a new file that is then hashed: sending a part again can't change a
# checked file.

STALE_SECONDS = 24 * 3600


class Parts:
    """The uploaded parts, at `root`/UPLOAD/NUMBER. An upload's name is of one account, repository and file."""

    def __init__(self, root: Path, database: Database) -> None:
        self._root, self._database = root, database

    def drop(self, upload: str, number: int) -> None:
        """Delete a part, if it is there, before it is sent again."""
        with self._database.write() as connection:
            (self._root / upload / str(number)).unlink(missing_ok=True)
            here = (reservations.c.upload == upload, reservations.c.number == number)
            connection.execute(delete(reservations).where(*here))

    def put(self, upload: str, number: int, part: Path, reservation: int | None = None) -> None:
        """Store a part, which is moved. Its reservation lasts until the file is complete.

        Raises Conflict if another request has stored it meanwhile, or the reservation has expired.
        """
        path = self._root / upload / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._database.write() as connection:
            is_reserved = True
            if reservation is not None:
                values = {"upload": upload, "number": number, "expires": None}
                here = reservations.c.id == reservation
                is_reserved = bool(
                    connection.execute(update(reservations).where(here).values(values)).rowcount
                )
            if path.exists() or not is_reserved:
                raise Conflict(f"part {number} is being sent by another request: send it again")
            part.replace(path)

    def join(self, upload: str, count: int, sha256: str, target: Path) -> int:
        """Join parts 1 to `count` into a new file and flush it. Returns the size in bytes. `discard` deletes them.

        Raises Invalid if a part is missing, or if the file has another sha256 and must be sent again; Conflict if
        another request joins them.
        """
        digest, folder = hashlib.sha256(), self._root / upload
        with sole_use(folder) as alone:
            if not alone and folder.exists():
                raise Conflict(f"the parts of {sha256[:12]}… are being joined: try again later")
            try:
                with target.open("xb") as whole:
                    for number in range(1, count + 1):
                        with (folder / str(number)).open("rb") as part:
                            while block := part.read(BUFFER):
                                digest.update(block)
                                whole.write(block)
                    whole.flush()
                    os.fsync(whole.fileno())
                    size = whole.tell()
            except FileNotFoundError:
                raise Invalid(f"part {number} of {sha256[:12]}… is missing: send it again") from None
        if digest.hexdigest() != sha256:
            self.discard(upload)
            raise Invalid(
                f"the parts have sha256 {digest.hexdigest()[:12]}…, expected {sha256[:12]}…: send them again"
            )
        return size

    def discard(self, upload: str) -> None:
        """Delete the parts of an upload."""
        with self._database.write() as connection:
            discard(self._root / upload)
            connection.execute(delete(reservations).where(reservations.c.upload == upload))

    def collect(self, *, dry_run: bool = False) -> list[tuple[Path, int]]:
        """Delete the parts of files without uploads for a day; returns paths and sizes."""
        before = time.time() - STALE_SECONDS
        folders = self._root.iterdir() if self._root.is_dir() else ()
        old = [folder for folder in folders if folder.stat().st_mtime < before]
        removed = []
        for folder in old:
            size = 0
            for part in folder.iterdir():
                with suppress(FileNotFoundError):  # joined just now
                    size += part.stat().st_size
            removed.append((folder, size))
        if not dry_run:
            for folder in old:
                self.discard(folder.name)
        return removed


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
            mine = (
                uploads.c.account_id == account_id,
                uploads.c.repository_id.is_not_distinct_from(repository_id),
                uploads.c.sha256.in_(sizes),
            )
            at = now()
            there = set(
                connection.scalars(update(uploads).where(*mine).values(at=at).returning(uploads.c.sha256))
            )
            whose = {
                "account_id": account_id,
                "repository_id": repository_id,
                "namespace_id": owner,
                "at": at,
            }
            if rows := [
                {"sha256": key, "size": size} | whose for key, size in sizes.items() if key not in there
            ]:
                connection.execute(insert(uploads), rows)
            if owner is not None:
                require_quota(connection, owner, self._quota)

    def usable(self, identity: Identity, sha256: str) -> int | None:
        """Return the bytes of a blob that the identity uploaded or may download; None: no such blob."""
        return self.usable_of(identity, [sha256]).get(sha256)

    def usable_of(self, identity: Identity, sha256s: Collection[str]) -> dict[str, int]:
        """Return the sizes of those blobs that the identity uploaded or may download."""
        with self._database.read() as connection:
            sizes = usable(connection, identity, sha256s)
        return {sha256: size for sha256, size in sizes.items() if self._blobs.holds(sha256)}

    def pending(self, account_id: int) -> int:
        """Return the bytes of the account's uploads that are in no commit."""
        query = select(func.coalesce(func.sum(uploads.c.size), 0)).where(uploads.c.account_id == account_id)
        with self._database.read() as connection:
            return int(connection.scalar(query) or 0)


def forget(connection: Connection, account_id: int, repository_id: int, sha256s: Collection[str]) -> None:
    """Delete the rows of uploads that the account has committed to the repository."""
    here = or_(uploads.c.repository_id == repository_id, uploads.c.repository_id.is_(None))
    mine = (uploads.c.account_id == account_id, here, uploads.c.sha256.in_(sha256s))
    connection.execute(delete(uploads).where(*mine))


# Counts the committed bytes of namespaces: their distinct blobs, and the trees of their commits.
#
# Whoever writes or deletes holdings or commits calls these in the same transaction: the counter is always the sum.


def namespace(connection: Connection, repository_id: int) -> int:
    """Return the account whose namespace has the repository."""
    here = select(repositories.c.namespace_id).where(repositories.c.id == repository_id)
    return int(connection.execute(here).scalar_one())


def add_tree(connection: Connection, repository_id: int, size: int) -> None:
    """Count the stored tree of a new commit; a negative size: of one that was deleted."""
    here = repositories.c.id == repository_id
    connection.execute(update(repositories).where(here).values(tree_bytes=repositories.c.tree_bytes + size))
    charge(connection, namespace(connection, repository_id), size)


def add_blobs(connection: Connection, repository_id: int, sha256s: Collection[str]) -> None:
    """Count blobs that were added to the repository."""
    owner = namespace(connection, repository_id)
    charge(connection, owner, _exclusive_bytes(connection, repository_id, owner, sha256s))


def remove_blobs(connection: Connection, repository_id: int, sha256s: Collection[str]) -> None:
    """Stop counting blobs that the repository is about to drop."""
    owner = namespace(connection, repository_id)
    charge(connection, owner, -_exclusive_bytes(connection, repository_id, owner, sha256s))


def remove(connection: Connection, repository_id: int) -> None:
    """Stop counting a repository that is about to be deleted."""
    charge(connection, namespace(connection, repository_id), -_sole_bytes(connection, repository_id))


def move(connection: Connection, repository_id: int, to: int) -> None:
    """Count a repository for the account that its row is about to name."""
    remove(connection, repository_id)
    here = holdings.c.repository_id == repository_id
    connection.execute(update(holdings).where(here).values(namespace_id=to))
    charge(connection, to, _sole_bytes(connection, repository_id, to))


def recount(connection: Connection) -> None:
    """Count everything again, for a hub whose counters can't be trusted."""
    stored_bytes: ColumnElement[int] = func.length(cast(commits.c.tree, LargeBinary))
    if connection.dialect.name == "postgresql":  # SQLite's length counts characters of text
        stored_bytes = func.octet_length(commits.c.tree)
    trees = select(func.coalesce(func.sum(stored_bytes), 0)).where(
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
            charge(connection, account, int(size))


def _sole_bytes(connection: Connection, repository_id: int, owner: int | None = None) -> int:
    """Return the bytes that the namespace has only for this repository."""
    owner = namespace(connection, repository_id) if owner is None else owner
    here = select(repositories.c.tree_bytes).where(repositories.c.id == repository_id)
    trees = int(connection.execute(here).scalar_one())
    return trees + _exclusive_bytes(connection, repository_id, owner)


def _exclusive_bytes(
    connection: Connection, repository_id: int, owner: int, sha256s: Collection[str] | None = None
) -> int:
    """Return the bytes of (some of) the repository's blobs that no other repository of the namespace holds."""
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
