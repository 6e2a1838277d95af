"""What every endpoint may ask for: the hub, the options, who asks, which repository is meant."""

from typing import Annotated, TypeAlias

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import NotThere, Unknown
from kcard.hub.repositories.rights import absent, may_read
from kcard.hub.repositories.values import Repository, Type
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.options import ServerOptions
from kcard.hub.shared import SharedHub

__all__ = [
    "Asked",
    "KnownIdentity",
    "MaybeIdentity",
    "Options",
    "TheHub",
    "base_url",
    "found",
    "repository_type",
]

TYPES: dict[str, Type] = {"models": "model", "datasets": "dataset"}


async def _hub(request: Request) -> SharedHub:
    hub: SharedHub = request.app.state.hub
    return hub


async def _options(request: Request) -> ServerOptions:
    options: ServerOptions = request.app.state.options
    return options


TheHub: TypeAlias = Annotated[SharedHub, Depends(_hub)]
Options: TypeAlias = Annotated[ServerOptions, Depends(_options)]


async def _identity(request: Request, hub: TheHub) -> Identity | None:
    header = request.headers.get("authorization")
    if header is None:  # most reading is: no thread for that
        return None
    identity = await run_in_threadpool(_identified, hub, header)
    request.state.account = identity.name
    return identity


def _identified(hub: SharedHub, header: str) -> Identity:
    kind, _, token = header.partition(" ")
    token = token.strip()
    if kind.lower() != "bearer" or not token:
        raise Unknown("the Authorization header must be: Bearer TOKEN")
    identity = hub.tokens.identify(token)
    if identity is None:
        raise Unknown("the token is not valid: it was revoked, has expired, or belongs to another hub")
    return identity


MaybeIdentity: TypeAlias = Annotated[Identity | None, Depends(_identity)]


async def _known(identity: MaybeIdentity) -> Identity:
    if identity is None:
        raise Unknown("log in first: `hf auth login` or `kcard login` with a token of this hub")
    return identity


KnownIdentity: TypeAlias = Annotated[Identity, Depends(_known)]


def repository_type(types: str) -> Type:
    """model or dataset, for the word in the path; NotThere for another."""
    if types not in TYPES:
        raise NotThere("repository", f"there are models and datasets here, no {types[:40]!r}")
    return TYPES[types]


def found(hub: SharedHub, type_: Type, name: str, identity: Identity | None) -> Repository:
    """The repository, for someone who may read it; otherwise it is as if it were not there."""
    try:
        repository = hub.repositories.get(type_, name)
    except NotThere:
        raise absent(name, identity) from None
    if not may_read(identity, repository):
        raise absent(name, identity)
    return repository


def _asked(
    types: Segment, namespace: Segment, name: Segment, hub: TheHub, identity: MaybeIdentity
) -> Repository:
    return found(hub, repository_type(types), f"{namespace}/{name}", identity)


# The repository of a route /api/{types}/{namespace}/{name}/…, for someone who may read it.
Asked: TypeAlias = Annotated[Repository, Depends(_asked)]


def base_url(request: Request, options: Options) -> str:
    """What the client reaches this hub by, without a slash at its end."""
    return options.url or f"{request.url.scheme}://{request.headers.get('host', request.url.netloc)}"
