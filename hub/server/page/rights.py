"""What a visitor may do with a repository, for the links and forms of its pages."""

from dataclasses import dataclass

from kcard.hub.accounts.identity import Identity
from kcard.hub.repositories.access import State
from kcard.hub.repositories.permissions import may_administer, may_write
from kcard.hub.repositories.values import Repository
from kcard.hub.shared import SharedHub

__all__ = ["Rights"]


@dataclass(frozen=True)
class Rights:
    """What an identity may do.

    writes      change files
    administers change settings, and answer requests for access
    access      the state of the identity's request for a gated repository; None: not requested
    waiting     requests that an administrator has not answered
    """

    writes: bool = False
    administers: bool = False
    access: State | None = None
    waiting: int = 0

    @classmethod
    def of(cls, hub: SharedHub, identity: Identity | None, repository: Repository) -> "Rights":
        """The rights of an identity in a repository that it may read."""
        if identity is None:
            return cls()
        gated = repository.gated != "no"
        administers = may_administer(identity, repository)
        state = hub.repositories.access_state(repository, identity.account_id) if gated else None
        asked = hub.repositories.requests(repository) if gated and administers else []
        waiting = sum(request.state == "pending" for request in asked)
        return cls(may_write(identity, repository), administers, state, waiting)
