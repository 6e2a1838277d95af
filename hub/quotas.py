"""Quotas of namespaces.

A quota is charged for three things:

- committed bytes: the distinct files of all commits, the trees of the commits, and the titles and messages of commits
  and tags. A file in ten commits counts once, and one that was deleted from main still counts, since its commit can be
  downloaded.
- uploads that are in no commit yet
- reservations: uploads in progress, and parts of files

The column `accounts.used` holds the committed bytes. Whoever writes or deletes holdings or commits updates it in the
same transaction, by the functions `count_…` and `discount_…`, so that it is always the exact sum.
"""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from kcard.hub.db.models import Account, Holding, Repository, Reservation, Upload, now
from kcard.hub.db.session import Database
from kcard.hub.errors import NotFound, TooLarge

# What an account may store, and what it is charged for.


def find_quota(session: Session, account_id: int, default: int | None) -> int | None:
    """Return the account's quota in bytes, or `default` if it has none of its own; None: no limit."""
    own = session.scalar(select(Account.quota).where(Account.id == account_id))
    return default if own is None else int(own)


def require_quota(session: Session, account_id: int, default: int | None = None, more: int = 0) -> None:
    """Raise TooLarge if the account exceeds its quota, or would with `more` bytes.

    Call it in the transaction that writes what is charged, so that the error rolls it back.
    """
    quota = find_quota(session, account_id, default)
    if quota is None:
        return
    total = charged_bytes(session, account_id) + more
    if total > quota:
        name = session.scalar(select(Account.name).where(Account.id == account_id))
        raise TooLarge(
            f"quota of {name} exceeded: {total} of {quota} bytes; delete repositories, or ask an administrator of this "
            "hub for a larger quota"
        )


def charged_bytes(session: Session, account_id: int) -> int:
    """Return the bytes that the account's quota is charged for."""
    committed = select(Holding.sha256).where(
        Holding.namespace_id == account_id, Holding.sha256 == Upload.sha256
    )
    pending = select(func.coalesce(func.sum(Upload.size), 0)).where(
        Upload.namespace_id == account_id, ~committed.exists()
    )
    live = or_(Reservation.expires.is_(None), Reservation.expires > now())
    reserved = select(func.coalesce(func.sum(Reservation.size), 0)).where(
        Reservation.namespace_id == account_id, live
    )
    parts = select(Account.used, pending.scalar_subquery(), reserved.scalar_subquery())
    return sum(map(int, session.execute(parts.where(Account.id == account_id)).one()))


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
        with self._database.read() as session:
            if find_quota(session, require_owner(session, repository_id), self._quota) is None:
                return None
        with self._database.write() as session:
            owner = require_owner(session, repository_id)
            session.execute(delete(Reservation).where(Reservation.expires < now()))
            require_quota(session, owner, self._quota, more=size)
            reservation = Reservation(namespace_id=owner, size=size, expires=now() + LIFETIME)
            session.add(reservation)
            session.flush()
            return reservation.id

    def renew(self, reservation: int) -> None:
        """Extend a reservation to LIFETIME from now."""
        here = (Reservation.id == reservation, Reservation.upload.is_(None))
        with self._database.write() as session:
            session.execute(update(Reservation).where(*here).values(expires=now() + LIFETIME))

    def release(self, reservation: int) -> None:
        """End a reservation, unless it has become that of a stored part."""
        here = (Reservation.id == reservation, Reservation.upload.is_(None))
        with self._database.write() as session:
            session.execute(delete(Reservation).where(*here))

    def remaining(self, repository_id: int) -> int | None:
        """Return the unused bytes of the quota of the repository's namespace; None: no limit."""
        with self._database.read() as session:
            owner = require_owner(session, repository_id)
            quota = find_quota(session, owner, self._quota)
            return None if quota is None else quota - charged_bytes(session, owner)


def reduce_reservation(session: Session, reservation: int, size: int) -> None:
    """Take bytes from a reservation, in the transaction that charges for them as stored."""
    here = (Reservation.id == reservation, Reservation.upload.is_(None))
    session.execute(update(Reservation).where(*here).values(size=Reservation.size - size))


def require_owner(session: Session, repository_id: int) -> int:
    """Return the account whose namespace contains the repository. Raises NotFound if the repository was deleted."""
    owner = session.scalar(select(Repository.namespace_id).where(Repository.id == repository_id))
    if owner is None:
        raise NotFound("repository", "the repository of this upload was deleted")
    return int(owner)


# Updates of the committed bytes.


def add_committed(session: Session, account_id: int, size: int) -> None:
    """Add to an account's committed bytes; a negative size subtracts."""
    here = Account.id == account_id
    session.execute(update(Account).where(here).values(used=Account.used + size))


def text_bytes(*texts: str) -> int:
    """Return the bytes that the texts of a commit or a tag are charged for."""
    return sum(len(text.encode()) for text in texts)


def count_history(session: Session, repository_id: int, size: int) -> None:
    """Count the stored tree and the texts of a new commit or tag; a negative size: of a deleted one."""
    here = Repository.id == repository_id
    session.execute(update(Repository).where(here).values(tree_bytes=Repository.tree_bytes + size))
    add_committed(session, require_owner(session, repository_id), size)


def count_blobs(session: Session, repository_id: int, sha256s: Collection[str]) -> None:
    """Count blobs that were added to the repository."""
    owner = require_owner(session, repository_id)
    add_committed(session, owner, _exclusive_bytes(session, repository_id, owner, sha256s))


def discount_blobs(session: Session, repository_id: int, sha256s: Collection[str]) -> None:
    """Stop counting blobs that are about to be removed from the repository."""
    owner = require_owner(session, repository_id)
    add_committed(session, owner, -_exclusive_bytes(session, repository_id, owner, sha256s))


def discount_repository(session: Session, repository_id: int) -> None:
    """Stop counting a repository that is about to be deleted."""
    owner = require_owner(session, repository_id)
    add_committed(session, owner, -_repository_bytes(session, repository_id, owner))


def transfer_repository(session: Session, repository_id: int, to: int) -> None:
    """Count a repository for the account that is about to become its owner."""
    discount_repository(session, repository_id)
    here = Holding.repository_id == repository_id
    session.execute(update(Holding).where(here).values(namespace_id=to))
    add_committed(session, to, _repository_bytes(session, repository_id, to))


def _repository_bytes(session: Session, repository_id: int, owner: int) -> int:
    """Return the bytes of the repository's history, and of its blobs that no other repository of the owner holds."""
    here = select(Repository.tree_bytes).where(Repository.id == repository_id)
    tree_bytes = int(session.execute(here).scalar_one())
    return tree_bytes + _exclusive_bytes(session, repository_id, owner)


def _exclusive_bytes(
    session: Session, repository_id: int, owner: int, sha256s: Collection[str] | None = None
) -> int:
    """Return the bytes of (some of) the repository's blobs that no other repository of the owner holds."""
    others = aliased(Holding)
    elsewhere = select(others.sha256).where(
        others.namespace_id == owner, others.sha256 == Holding.sha256, others.repository_id != repository_id
    )
    mine: ColumnElement[bool] = and_(Holding.repository_id == repository_id, ~elsewhere.exists())
    if sha256s is not None:
        mine = and_(mine, Holding.sha256.in_(sha256s))
    return int(session.scalar(select(func.coalesce(func.sum(Holding.size), 0)).where(mine)) or 0)
