"""Who may read and write a repository.

A token's scope limits what its user may do. read: only read. write: also change, create and administer. admin: also act
as an administrator of the hub, who has all rights in every repository. A token for one repository is anonymous in all
others.

    in a namespace      may
    its own user        do everything
    role read           read private repositories, and files of gated ones
    role write          also create repositories and change files
    role admin          also delete, move, make private or gated, answer requests for access
    everyone            read public repositories, and files of gated ones after access was granted
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, and_, false, or_, select, true
from sqlalchemy.orm import Session

from kcard.hub.accounts import Identity, fold_name
from kcard.hub.db.models import PUBLIC, AccessRequest, AccessState, Account, Holding, Repository, Role, Upload
from kcard.hub.errors import Forbidden, Gated, Invalid, NotFound, Refused, Unauthenticated
from kcard.hub.tokens import refresh_identity

# Requests for access to gated repositories.

GRANTED: Literal["granted"] = "granted"
MAX_NOTE_CHARACTERS = 2000  # characters


def put_request(
    session: Session, repository: Repository, account_id: int, state: AccessState, note: str = ""
) -> None:
    """Set the state of an account's request, creating it with the note if needed. Raises Invalid for a long note."""
    if len(note) > MAX_NOTE_CHARACTERS or "\0" in note:
        raise Invalid(f"invalid note: use at most {MAX_NOTE_CHARACTERS} characters, without NUL")
    key = {"repository_id": repository.id, "account_id": account_id}
    request = session.get(AccessRequest, key)
    if request is None:
        session.add(AccessRequest(state=state, note=note, **key))
    else:
        request.state = state


RANKS: dict[Role, int] = {"read": 1, "write": 2, "admin": 3}
LOGIN = "log in first: `hf auth login` or `kcard login` with a token of this hub"


@dataclass(frozen=True)
class Reach:
    """The private repositories that an identity may see: the common rule of the functions and the SQL conditions below.

    everything  whether it may see all of them
    namespaces  namespaces, in lower case, whose repositories it may see
    only        id of the only one of these that the token is valid for; None: all
    """

    everything: bool = False
    namespaces: frozenset[str] = frozenset()
    only: int | None = None

    def has(self, repository: Repository) -> bool:
        """Return whether the reach includes a repository."""
        if self.only not in {None, repository.id}:
            return False
        return self.everything or fold_name(repository.namespace) in self.namespaces


def reach_of(identity: Identity | None) -> Reach:
    """Return the private repositories that the identity sees."""
    if identity is None:
        return Reach()
    names = frozenset(fold_name(name) for name in (identity.name, *identity.organisations))
    return Reach(is_administrator(identity), names, identity.repository_id)


def may_read(identity: Identity | None, repository: Repository) -> bool:
    """Return whether the identity may see and read the repository."""
    return not repository.private or reach_of(identity).has(repository)


def may_download(identity: Identity | None, repository: Repository, granted: bool) -> bool:
    """Return whether the identity may download files; `granted`: whether its request for access was granted."""
    if not may_read(identity, repository):
        return False
    insider = reach_of(identity).has(repository)
    return repository.gated == "no" or insider or (granted and _is_token_for(identity, repository))


def may_write(identity: Identity | None, repository: Repository) -> bool:
    """Return whether the identity may change files, branches and tags."""
    return _has_scope(identity, "write") and _rank(identity, repository) >= RANKS["write"]


def may_administer(identity: Identity | None, repository: Repository) -> bool:
    """Return whether the identity may delete, move, hide or gate the repository."""
    return _has_scope(identity, "write") and _rank(identity, repository) >= RANKS["admin"]


def may_create(identity: Identity | None, namespace: str) -> bool:
    """Return whether the identity may create repositories there. A token for one repository may not."""
    if identity is None or identity.repository_id is not None or not _has_scope(identity, "write"):
        return False
    return is_administrator(identity) or _rank_in(identity, namespace) >= RANKS["write"]


def is_administrator(identity: Identity | None) -> bool:
    """Return whether the identity administers the hub: an administrator with a token of scope admin."""
    return (
        identity is not None
        and identity.admin
        and identity.scope == "admin"
        and identity.repository_id is None
    )


def require_read(identity: Identity | None, repository: Repository) -> None:
    """Raise NotFound unless `may_read`."""
    if not may_read(identity, repository):
        raise repository_not_found(repository.name, identity)


def require_download(identity: Identity | None, repository: Repository, granted: bool) -> None:
    """Raise as `require_read`, and Gated unless `may_download`."""
    require_read(identity, repository)
    if not may_download(identity, repository, granted):
        remedy = "request access"
        if identity is None:
            remedy = f"log in and {remedy}"
        raise Gated(f"{repository.name} is gated: {remedy}", known=identity is not None)


def require_write(identity: Identity | None, repository: Repository) -> None:
    """Raise as `require_read`, and Unauthenticated or Forbidden unless `may_write`."""
    require_read(identity, repository)
    if not may_write(identity, repository):
        raise _refusal(identity, f"change {repository.name}", RANKS["write"], _rank(identity, repository))


def require_write_now(session: Session, identity: Identity, repository_id: int) -> Identity:
    """Return the identity with its present roles. Call it in the transaction that writes.

    Raises as `require_write`, and Unauthenticated if the token was revoked or the user disabled while the request was
    sent, and NotFound if the repository was deleted.
    """
    current = refresh_identity(session, identity)
    repository = session.get(Repository, repository_id)
    if repository is None:
        raise NotFound("repository", "the repository was deleted while the request was sent")
    require_write(current, repository)
    return current


def require_administer(identity: Identity | None, repository: Repository) -> None:
    """Raise as `require_read`, and Unauthenticated or Forbidden unless `may_administer`."""
    require_read(identity, repository)
    if not may_administer(identity, repository):
        raise _refusal(identity, f"administer {repository.name}", RANKS["admin"], _rank(identity, repository))


def require_create(identity: Identity | None, namespace: str) -> None:
    """Raise Unauthenticated or Forbidden unless `may_create`."""
    if not may_create(identity, namespace):
        rank = 0 if identity is None or identity.repository_id else _rank_in(identity, namespace)
        raise _refusal(identity, f"create repositories in {namespace[:100]}", RANKS["write"], rank)


def require_unrestricted(identity: Identity) -> None:
    """Raise Forbidden for a token that is limited to one repository or to reading."""
    remedy = "does not allow this: use one of scope write for all repositories"
    if identity.repository_id is not None:
        raise Forbidden(f"a token for one repository {remedy}")
    if not _has_scope(identity, "write"):
        raise Forbidden(f"a token of scope {identity.scope} {remedy}")


def require_administrator(identity: Identity | None) -> None:
    """Raise Unauthenticated or Forbidden unless `is_administrator`."""
    if identity is None:
        raise Unauthenticated(LOGIN)
    if not is_administrator(identity):
        raise Forbidden("permission denied: this requires an administrator's token with scope admin")


def repository_not_found(name: str, identity: Identity | None) -> NotFound:
    """Return the error for a missing repository and, identically, for one that the identity may not read.

    `name` is as in the request, since the case of a private repository's name is private too.
    """
    message = f"repository {name[:200]!r} not found, or private: check the name and the token"
    return NotFound("repository", message, known=identity is not None)


def _refusal(identity: Identity | None, what: str, needed: int, rank: int) -> Refused:
    """Return the error for an identity of that rank that may not do something."""
    if identity is None:
        return Unauthenticated(LOGIN)
    if rank >= needed:
        return Forbidden(f"a token with scope {identity.scope} can't {what}: use one with scope write")
    return Forbidden(f"{identity.name} can't {what} with this token: ask the owner, or use another token")


def _rank(identity: Identity | None, repository: Repository) -> int:
    """Return the rank of the identity in the repository's namespace, regardless of the token's scope; 0: none."""
    if identity is None or not _is_token_for(identity, repository):
        return 0
    if is_administrator(identity):
        return RANKS["admin"]
    return _rank_in(identity, repository.namespace)


def _rank_in(identity: Identity, namespace: str) -> int:
    key = fold_name(namespace)
    if fold_name(identity.name) == key:
        return RANKS["admin"]
    for name, role in identity.organisations.items():
        if fold_name(name) == key:
            return RANKS[role]
    return 0


def _is_token_for(identity: Identity | None, repository: Repository) -> bool:
    return identity is not None and identity.repository_id in {None, repository.id}


def _has_scope(identity: Identity | None, least: Role) -> bool:
    return identity is not None and RANKS[identity.scope] >= RANKS[least]


# SQL conditions for what an identity may read, by the same rules.

IS_PUBLIC = Repository.visibility == PUBLIC


def readable(identity: Identity | None) -> ColumnElement[bool]:
    """Return the condition on `repositories` for those that the identity may read."""
    return IS_PUBLIC if identity is None else or_(IS_PUBLIC, _is_within_reach(identity))


def downloadable(identity: Identity | None) -> ColumnElement[bool]:
    """Return the condition on `repositories` for those whose files the identity may download."""
    granted: ColumnElement[bool] = false()
    if identity is not None:
        mine = (AccessRequest.repository_id == Repository.id, AccessRequest.account_id == identity.account_id)
        requests = (
            select(AccessRequest.state).where(*mine, AccessRequest.state == GRANTED).correlate(Repository)
        )
        granted = and_(requests.exists(), _is_allowed_by_token(identity.repository_id))
    return or_(and_(IS_PUBLIC, or_(Repository.gated == "no", granted)), _is_within_reach(identity))


def find_usable_blobs(session: Session, identity: Identity, sha256s: Collection[str]) -> dict[str, int]:
    """Return the sizes of the blobs that the account uploaded recently or may download from a repository.

    A token for one repository may use only what was uploaded for it.
    """
    mine = [Upload.account_id == identity.account_id, Upload.sha256.in_(sha256s)]
    if identity.repository_id is not None:
        mine.append(Upload.repository_id == identity.repository_id)
    rows = session.execute(select(Upload.sha256, Upload.size).where(*mine))
    sizes: dict[str, int] = dict(rows.tuples().all())
    in_repositories = (
        select(Holding.size).join_from(Holding, Repository).where(downloadable(identity)).limit(1)
    )
    for sha256 in sorted(set(sha256s) - sizes.keys()):  # one by one: many repositories may have the same file
        size = session.scalar(in_repositories.where(Holding.sha256 == sha256))
        if size is not None:
            sizes[sha256] = size
    return sizes


def _is_within_reach(identity: Identity | None) -> ColumnElement[bool]:
    theirs = reach_of(identity)
    if theirs.everything:
        return true()
    if not theirs.namespaces:
        return false()
    owners = select(Account.id).where(Account.folded.in_(sorted(theirs.namespaces)))
    return and_(Repository.namespace_id.in_(owners), _is_allowed_by_token(theirs.only))


def _is_allowed_by_token(only: int | None) -> ColumnElement[bool]:
    """Return the condition for the only repository of a token, which counts as anonymous elsewhere."""
    return true() if only is None else Repository.id == only
