"""What an identity may do. Pure: everything is decided from the identity and the repository.

A token's scope caps what its user may do. read: read. write: also change, create and administer what the user has a
right to. admin: also what the user may do as an administrator of the hub, to whom every repository belongs. A token
that is bound to one repository works there; elsewhere whoever shows it is nobody in particular.

    in a namespace      may
    its own user        everything
    role read           read private repositories, and the files of gated ones
    role write          also create, and change files
    role admin          also delete, move, make private or gated, answer requests for access
    everyone            read what is public; the files of a gated repository where access was granted
"""

from dataclasses import dataclass

from kcard.hub.accounts.identity import Identity, Role
from kcard.hub.accounts.names import folded
from kcard.hub.refusals import Forbidden, Gated, NotThere, Refused, Unknown
from kcard.hub.repositories.values import Repository

__all__ = [
    "Reach",
    "absent",
    "is_administrator",
    "may_administer",
    "may_create",
    "may_download",
    "may_read",
    "may_write",
    "reach",
    "require_administer",
    "require_administrator",
    "require_create",
    "require_download",
    "require_read",
    "require_write",
]

RANKS: dict[Role, int] = {"read": 1, "write": 2, "admin": 3}
NOBODY = "log in first: `hf auth login` or `kcard login` with a token of this hub"


@dataclass(frozen=True)
class Reach:
    """Whose private repositories somebody sees: a value that Python and a query (repositories/reading.py) go by.

    everything  all of them
    namespaces  those of these namespaces, in lower case
    only        of these none but this one, to which the token is bound
    """

    everything: bool = False
    namespaces: frozenset[str] = frozenset()
    only: int | None = None

    def has(self, repository: Repository) -> bool:
        """Whether a repository is among them."""
        if self.only not in {None, repository.id}:
            return False
        return self.everything or folded(repository.namespace) in self.namespaces


def reach(identity: Identity | None) -> Reach:
    """What whoever asks may see beside the public repositories."""
    if identity is None:
        return Reach()
    names = frozenset(folded(name) for name in (identity.name, *identity.organisations))
    return Reach(is_administrator(identity), names, identity.repository_id)


def may_read(identity: Identity | None, repository: Repository) -> bool:
    """Whether the repository is there at all, for whoever asks."""
    return not repository.private or reach(identity).has(repository)


def may_download(identity: Identity | None, repository: Repository, granted: bool) -> bool:
    """Whether its files are given out; `granted`: whether access to a gated one was granted to this account."""
    if not may_read(identity, repository):
        return False
    insider = reach(identity).has(repository)
    return repository.gated == "no" or insider or (granted and _works_for(identity, repository))


def may_write(identity: Identity | None, repository: Repository) -> bool:
    """Whether files, branches and tags may be changed."""
    return _scope(identity, "write") and _role(identity, repository) >= RANKS["write"]


def may_administer(identity: Identity | None, repository: Repository) -> bool:
    """Whether it may be deleted, moved, made private or gated."""
    return _scope(identity, "write") and _role(identity, repository) >= RANKS["admin"]


def may_create(identity: Identity | None, namespace: str) -> bool:
    """Whether a new repository may be made there. A token of one repository makes no other."""
    if identity is None or identity.repository_id is not None or not _scope(identity, "write"):
        return False
    return is_administrator(identity) or _rank_in(identity, namespace) >= RANKS["write"]


def is_administrator(identity: Identity | None) -> bool:
    """Whether the hub itself may be administered: by an administrator's token of scope admin."""
    return (
        identity is not None
        and identity.admin
        and identity.scope == "admin"
        and identity.repository_id is None
    )


def require_read(identity: Identity | None, repository: Repository) -> None:
    """NotThere where it may not be read: a private repository is as if it were not there."""
    if not may_read(identity, repository):
        raise absent(repository.name, identity)


def require_download(identity: Identity | None, repository: Repository, granted: bool) -> None:
    """As `require_read`, and Gated where the files are given out on request only."""
    require_read(identity, repository)
    if not may_download(identity, repository, granted):
        raise Gated(
            f"access to {repository.name} is granted on request: "
            + ("ask for it" if identity else "log in, and ask for it"),
            known=identity is not None,
        )


def require_write(identity: Identity | None, repository: Repository) -> None:
    """As `require_read`, and Unknown for nobody, Forbidden for somebody who may not change it."""
    require_read(identity, repository)
    if not may_write(identity, repository):
        raise _refusal(identity, f"change {repository.name}", RANKS["write"], _role(identity, repository))


def require_administer(identity: Identity | None, repository: Repository) -> None:
    """As `require_write`, for what deletes, moves, hides or gates a repository."""
    require_read(identity, repository)
    if not may_administer(identity, repository):
        raise _refusal(identity, f"administer {repository.name}", RANKS["admin"], _role(identity, repository))


def require_create(identity: Identity | None, namespace: str) -> None:
    """Unknown for nobody, Forbidden for somebody who may not make a repository there."""
    if not may_create(identity, namespace):
        rank = 0 if identity is None or identity.repository_id else _rank_in(identity, namespace)
        raise _refusal(identity, f"make repositories in {namespace[:100]}", RANKS["write"], rank)


def require_administrator(identity: Identity | None) -> None:
    """Unknown for nobody, Forbidden for whoever does not administer the hub."""
    if identity is None:
        raise Unknown(NOBODY)
    if not is_administrator(identity):
        raise Forbidden("this needs an administrator of the hub, with a token of scope admin")


def absent(name: str, identity: Identity | None) -> NotThere:
    """The refusal for a repository that is not there, and, word for word, for one that is there for others only.

    `name` as it was asked for: the spelling of a private repository's name is not told either.
    """
    message = f"there is no repository {name[:200]!r}, or it is private: check the name and the token"
    return NotThere("repository", message, known=identity is not None)


def _refusal(identity: Identity | None, what: str, needed: int, rank: int) -> Refused:
    if identity is None:
        return Unknown(NOBODY)
    if rank >= needed:
        return Forbidden(f"a token of scope {identity.scope} may not {what}: use one of scope write")
    return Forbidden(f"{identity.name} may not {what} with this token: ask who owns it, or use another token")


def _role(identity: Identity | None, repository: Repository) -> int:
    """The rank of whoever asks in the repository's namespace, before the scope of the token; 0: none."""
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
