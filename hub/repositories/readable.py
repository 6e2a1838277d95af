"""SQL conditions for what an identity may read, with the rules of permissions.py."""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, and_, false, or_, select, true

from kcard.hub.accounts.identity import Identity
from kcard.hub.records.account_tables import accounts
from kcard.hub.records.repository_tables import access, holdings, repositories, uploads
from kcard.hub.repositories.access import GRANTED
from kcard.hub.repositories.permissions import reach
from kcard.hub.repositories.rows import PUBLIC

__all__ = ["downloadable", "readable", "usable"]


def readable(identity: Identity | None) -> ColumnElement[bool]:
    """The condition on `repositories` for those that the identity may read."""
    return or_(repositories.c.visibility == PUBLIC, _belongs(identity))


def downloadable(identity: Identity | None) -> ColumnElement[bool]:
    """The condition on `repositories` for those whose files the identity may download."""
    public = repositories.c.visibility == PUBLIC
    return or_(and_(public, or_(repositories.c.gated == "no", _granted(identity))), _belongs(identity))


def usable(connection: Connection, identity: Identity, sha256s: Collection[str]) -> dict[str, int]:
    """Sizes of the blobs that the account uploaded recently, or that are in a repository that it may download.

    A token for one repository may use only what was uploaded for it.
    """
    mine = [uploads.c.account_id == identity.account_id, uploads.c.sha256.in_(sha256s)]
    if identity.repository_id is not None:
        mine.append(uploads.c.repository_id == identity.repository_id)
    rows = connection.execute(select(uploads.c.sha256, uploads.c.size).where(*mine))
    found: dict[str, int] = dict(rows.tuples().all())
    held = select(holdings.c.size).join_from(holdings, repositories).where(downloadable(identity)).limit(1)
    for sha256 in sorted(set(sha256s) - found.keys()):  # one by one: many repositories may have the same file
        if (size := connection.scalar(held.where(holdings.c.sha256 == sha256))) is not None:
            found[sha256] = size
    return found


def _belongs(identity: Identity | None) -> ColumnElement[bool]:
    theirs = reach(identity)
    if theirs.everything:
        return true()
    owners = select(accounts.c.id).where(accounts.c.folded.in_(sorted(theirs.namespaces)))
    return (
        and_(repositories.c.namespace_id.in_(owners), _bound(theirs.only)) if theirs.namespaces else false()
    )


def _granted(identity: Identity | None) -> ColumnElement[bool]:
    if identity is None:
        return false()
    mine = (access.c.repository_id == repositories.c.id, access.c.account_id == identity.account_id)
    granted = select(access.c.state).where(*mine, access.c.state == GRANTED).correlate(repositories)
    return and_(granted.exists(), _bound(identity.repository_id))


def _bound(only: int | None) -> ColumnElement[bool]:
    """A token for one repository counts as anonymous elsewhere."""
    return true() if only is None else repositories.c.id == only
