"""Permissions, as pure functions of an identity and a repository.

A token's scope limits its user. read: read only. write: also what the user may change, create and administer. admin:
also what the user may do as an administrator of the hub, who owns every repository. A token for one repository counts
as anonymous everywhere else.

    in a namespace      may
    its own user        do everything
    role read           read private repositories, and files of gated ones
    role write          also create repositories and change files
    role admin          also delete, move, make private or gated, answer requests for access
    everyone            read public repositories, and files of gated ones after access was granted
"""

from dataclasses import dataclass

from kcard.hub.accounts.identity import Identity, Role
from kcard.hub.accounts.names import folded
from kcard.hub.refusals import Forbidden, Gated, NotThere, Refused, Unknown
from kcard.hub.repositories.values import Repository

__all__ = [
    "LOGIN",
    "Reach",
    "absent",
    "is_administrator",
    "may_administer",
    "may_administer_namespace",
    "may_create",
    "may_download",
    "may_read",
    "may_write",
    "reach",
    "require_administer",
    "require_administer_namespace",
    "require_administrator",
    "require_create",
    "require_download",
    "require_read",
    "require_unbound",
    "require_write",
]

RANKS: dict[Role, int] = {"read": 1, "write": 2, "admin": 3}
LOGIN = "log in first: `hf auth login` or `kcard login` with a token of this hub"


@dataclass(frozen=True)
class Reach:
    """The private repositories that an identity sees, for Python and for SQL (readable.py).

    everything  all of them
    namespaces  those in these namespaces, in lower case
    only        of these, only the one that the token is limited to
    """

    everything: bool = False
    namespaces: frozenset[str] = frozenset()
    only: int | None = None

    def has(self, repository: Repository) -> bool:
        """Whether it includes a repository."""
        if self.only not in {None, repository.id}:
            return False
        return self.everything or folded(repository.namespace) in self.namespaces


def reach(identity: Identity | None) -> Reach:
    """The private repositories that the identity sees."""
    if identity is None:
        return Reach()
    names = frozenset(folded(name) for name in (identity.name, *identity.organisations))
    return Reach(is_administrator(identity), names, identity.repository_id)


def may_read(identity: Identity | None, repository: Repository) -> bool:
    """Whether the identity may know of the repository and read it."""
    return not repository.private or reach(identity).has(repository)


def may_download(identity: Identity | None, repository: Repository, granted: bool) -> bool:
    """Whether the identity may download files; `granted`: whether the account has access to a gated repository."""
    if not may_read(identity, repository):
        return False
    insider = reach(identity).has(repository)
    return repository.gated == "no" or insider or (granted and _works_for(identity, repository))


def may_write(identity: Identity | None, repository: Repository) -> bool:
    """Whether the identity may change files, branches and tags."""
    return _scope(identity, "write") and _role(identity, repository) >= RANKS["write"]


def may_administer(identity: Identity | None, repository: Repository) -> bool:
    """Whether the identity may delete, move, hide or gate the repository."""
    return _scope(identity, "write") and _role(identity, repository) >= RANKS["admin"]


def may_administer_namespace(identity: Identity | None, namespace: str) -> bool:
    """Whether the identity may change the description and the members. A token for one repository may not."""
    if identity is None or identity.repository_id is not None or not _scope(identity, "write"):
        return False
    return is_administrator(identity) or _rank_in(identity, namespace) >= RANKS["admin"]


def may_create(identity: Identity | None, namespace: str) -> bool:
    """Whether the identity may create repositories there. A token for one repository may not."""
    if identity is None or identity.repository_id is not None or not _scope(identity, "write"):
        return False
    return is_administrator(identity) or _rank_in(identity, namespace) >= RANKS["write"]


def is_administrator(identity: Identity | None) -> bool:
    """Whether the identity administers the hub: an administrator with a token of scope admin."""
    return (
        identity is not None
        and identity.admin
        and identity.scope == "admin"
        and identity.repository_id is None
    )


def require_read(identity: Identity | None, repository: Repository) -> None:
    """Raise NotThere unless `may_read`."""
    if not may_read(identity, repository):
        raise absent(repository.name, identity)


def require_download(identity: Identity | None, repository: Repository, granted: bool) -> None:
    """As `require_read`, and raise Gated unless `may_download`."""
    require_read(identity, repository)
    if not may_download(identity, repository, granted):
        raise Gated(
            f"{repository.name} is gated: " + ("request access" if identity else "log in and request access"),
            known=identity is not None,
        )


def require_write(identity: Identity | None, repository: Repository) -> None:
    """As `require_read`, and raise Unknown or Forbidden unless `may_write`."""
    require_read(identity, repository)
    if not may_write(identity, repository):
        raise _refusal(identity, f"change {repository.name}", RANKS["write"], _role(identity, repository))


def require_administer(identity: Identity | None, repository: Repository) -> None:
    """As `require_read`, and raise Unknown or Forbidden unless `may_administer`."""
    require_read(identity, repository)
    if not may_administer(identity, repository):
        raise _refusal(identity, f"administer {repository.name}", RANKS["admin"], _role(identity, repository))


def require_create(identity: Identity | None, namespace: str) -> None:
    """Raise Unknown or Forbidden unless `may_create`."""
    if not may_create(identity, namespace):
        rank = 0 if identity is None or identity.repository_id else _rank_in(identity, namespace)
        raise _refusal(identity, f"create repositories in {namespace[:100]}", RANKS["write"], rank)


def require_administer_namespace(identity: Identity | None, namespace: str) -> None:
    """Raise Unknown or Forbidden unless `may_administer_namespace`."""
    if not may_administer_namespace(identity, namespace):
        rank = 0 if identity is None or identity.repository_id else _rank_in(identity, namespace)
        raise _refusal(identity, f"administer {namespace[:100]}", RANKS["admin"], rank)


def require_unbound(identity: Identity) -> None:
    """Raise Forbidden for a token that is limited to one repository or to reading."""
    if identity.repository_id is not None or not _scope(identity, "write"):
        limit = "for one repository" if identity.repository_id is not None else f"of scope {identity.scope}"
        raise Forbidden(f"a token {limit} does not allow this: use one of scope write for all repositories")


def require_administrator(identity: Identity | None) -> None:
    """Raise Unknown or Forbidden unless `is_administrator`."""
    if identity is None:
        raise Unknown(LOGIN)
    if not is_administrator(identity):
        raise Forbidden("permission denied: this requires an administrator's token with scope admin")


def absent(name: str, identity: Identity | None) -> NotThere:
    """The error for a missing repository and, identically, for one that the identity may not read.

    `name` is as in the request, since the case of a private repository's name is private too.
    """
    message = f"repository {name[:200]!r} not found, or private: check the name and the token"
    return NotThere("repository", message, known=identity is not None)


def _refusal(identity: Identity | None, what: str, needed: int, rank: int) -> Refused:
    if identity is None:
        return Unknown(LOGIN)
    if rank >= needed:
        return Forbidden(f"a token with scope {identity.scope} can't {what}: use one with scope write")
    return Forbidden(f"{identity.name} can't {what} with this token: ask the owner, or use another token")


def _role(identity: Identity | None, repository: Repository) -> int:
    """The rank of the identity in the repository's namespace, regardless of the token's scope; 0: none."""
    if identity is None or not _works_for(identity, repository):
        return 0
    if is_administrator(identity):
        return RANKS["admin"]
    return _rank_in(identity, repository.namespace)


def _rank_in(identity: Identity, namespace: str) -> int:
    wanted = folded(namespace)
    if folded(identity.name) == wanted:
        return RANKS["admin"]
    roles = (role for name, role in identity.organisations.items() if folded(name) == wanted)
    return max((RANKS[role] for role in roles), default=0)


def _works_for(identity: Identity | None, repository: Repository) -> bool:
    return identity is not None and identity.repository_id in {None, repository.id}


def _scope(identity: Identity | None, least: Role) -> bool:
    return identity is not None and RANKS[identity.scope] >= RANKS[least]
