"""Whether the files of a repository are given out to whoever asks."""

from kcard.hub.accounts.identity import Identity
from kcard.hub.repositories.rights import require_download
from kcard.hub.repositories.values import Repository
from kcard.hub.shared import SharedHub

__all__ = ["granted", "require_release"]


def granted(hub: SharedHub, identity: Identity | None, repository: Repository) -> bool:
    """Whether access to a gated repository was granted to this account."""
    if identity is None or repository.gated == "no":
        return False
    return hub.repositories.granted(repository, identity.account_id)


def require_release(hub: SharedHub, identity: Identity | None, repository: Repository) -> None:
    """NotThere for a repository that may not be read, Gated for one whose files are given out on request."""
    require_download(identity, repository, granted(hub, identity, repository))
