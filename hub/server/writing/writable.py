"""Which repository a request wants to change, for someone who may."""

from typing import Annotated, TypeAlias

from fastapi import Depends

from kcard.hub.repositories.rights import require_administer, require_write
from kcard.hub.repositories.values import Repository
from kcard.hub.server.asking import Asked, MaybeIdentity

__all__ = ["Administered", "Writable"]


def _writable(repository: Asked, identity: MaybeIdentity) -> Repository:
    require_write(identity, repository)
    return repository


def _administered(repository: Asked, identity: MaybeIdentity) -> Repository:
    require_administer(identity, repository)
    return repository


# The repository of a route /api/{types}/{namespace}/{name}/…, for someone who may change its files, branches and tags.
Writable: TypeAlias = Annotated[Repository, Depends(_writable)]
# Likewise, for someone who may delete, move, hide or gate it.
Administered: TypeAlias = Annotated[Repository, Depends(_administered)]
