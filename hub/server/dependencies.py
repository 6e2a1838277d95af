"""FastAPI dependencies of the endpoints: the hub, its options, the client's identity, the repository of the route."""

from typing import Annotated, TypeAlias

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.sessions import Session
from kcard.hub.refusals import NotThere, Unknown, Unsupported
from kcard.hub.repositories import permissions
from kcard.hub.repositories.permissions import LOGIN, absent, require_administer, require_write
from kcard.hub.repositories.values import Repository, Type
from kcard.hub.server import session_cookie
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.options import ServerOptions
from kcard.hub.shared import SharedHub

__all__ = [
    "AdministeredRepository",
    "HubDep",
    "NoPullRequest",
    "OptionalIdentity",
    "OptionsDep",
    "RepositoryDep",
    "RequiredIdentity",
    "SessionDep",
    "WebRepository",
    "WritableRepository",
    "base_url",
    "get_repository",
    "has_access",
    "repository_type",
    "require_download",
    "web_type",
]

TYPES: dict[str, Type] = {"models": "model", "datasets": "dataset"}
FALSE = frozenset(["", "0", "false"])
READS = frozenset(["GET", "HEAD"])
API = "/api/"


async def _hub(request: Request) -> SharedHub:
    hub: SharedHub = request.app.state.hub
    return hub


async def _options(request: Request) -> ServerOptions:
    options: ServerOptions = request.app.state.options
    return options


HubDep: TypeAlias = Annotated[SharedHub, Depends(_hub)]
OptionsDep: TypeAlias = Annotated[ServerOptions, Depends(_options)]


async def _session(request: Request, hub: HubDep, options: OptionsDep) -> Session | None:
    id_ = session_cookie.read(request, base_url(request, options))
    if not id_ or "authorization" in request.headers or request.scope["path"].startswith(API):
        return None
    session = await run_in_threadpool(hub.sessions.find, id_)
    if session is not None:
        request.state.account = session.identity.name
    return session


# The session of a browser, outside of the API. Whoever uses it for a change must check the form, see forms/form.py.
SessionDep: TypeAlias = Annotated[Session | None, Depends(_session)]


async def _identity(request: Request, hub: HubDep, session: SessionDep) -> Identity | None:
    """By the token. The session of a browser counts for reading outside of the API only: other sites can make browsers
    send its cookie.
    """
    header = request.headers.get("authorization")
    if header is None:  # most reads: they need no thread
        return session.identity if session is not None and request.method in READS else None
    identity = await run_in_threadpool(_identify, hub, header)
    request.state.account = identity.name
    return identity


def _identify(hub: SharedHub, header: str) -> Identity:
    kind, _, token = header.partition(" ")
    token = token.strip()
    if kind.lower() != "bearer" or not token:
        raise Unknown("invalid Authorization header: use 'Bearer TOKEN'")
    identity = hub.tokens.identify(token)
    if identity is None:
        raise Unknown("invalid token: it was revoked, has expired, or belongs to another hub")
    return identity


OptionalIdentity: TypeAlias = Annotated[Identity | None, Depends(_identity)]


async def _required_identity(identity: OptionalIdentity) -> Identity:
    if identity is None:
        raise Unknown(LOGIN)
    return identity


RequiredIdentity: TypeAlias = Annotated[Identity, Depends(_required_identity)]


def repository_type(types: str) -> Type:
    """The type for the path segment `models` or `datasets`. Raises NotThere for any other."""
    if types not in TYPES:
        raise NotThere("repository", f"unknown repository type {types[:40]!r}: use models or datasets")
    return TYPES[types]


def get_repository(hub: SharedHub, type_: Type, name: str, identity: Identity | None) -> Repository:
    """The repository, if the client may read it. Raises the same NotThere for a private and a missing one."""
    try:
        return hub.repositories.readable(type_, name, identity)
    except NotThere:
        raise absent(name, identity) from None


def has_access(hub: SharedHub, identity: Identity | None, repository: Repository) -> bool:
    """Whether the account was granted access to a gated repository."""
    if identity is None or repository.gated == "no":
        return False
    return hub.repositories.granted(repository, identity.account_id)


def require_download(hub: SharedHub, identity: Identity | None, repository: Repository) -> None:
    """Raise NotThere if the client may not read the repository, Gated if it may not have its files."""
    permissions.require_download(identity, repository, has_access(hub, identity, repository))


def _repository(
    types: Segment, namespace: Segment, name: Segment, hub: HubDep, identity: OptionalIdentity
) -> Repository:
    return get_repository(hub, repository_type(types), f"{namespace}/{name}", identity)


# The repository of a route /api/{types}/{namespace}/{name}/…, which the client may read.
RepositoryDep: TypeAlias = Annotated[Repository, Depends(_repository)]


def web_type(request: Request) -> Type:
    """The type of repository that a path outside of /api names: datasets are under /datasets."""
    return "dataset" if request.scope["path"].startswith("/datasets/") else "model"


def _web_repository(
    request: Request, namespace: Segment, name: Segment, hub: HubDep, identity: OptionalIdentity
) -> Repository:
    return get_repository(hub, web_type(request), f"{namespace}/{name}", identity)


# The repository of a route /{namespace}/{name}/… or /datasets/{namespace}/{name}/…, which the client may read.
WebRepository: TypeAlias = Annotated[Repository, Depends(_web_repository)]


def _writable(repository: RepositoryDep, identity: OptionalIdentity) -> Repository:
    require_write(identity, repository)
    return repository


def _administered(repository: RepositoryDep, identity: OptionalIdentity) -> Repository:
    require_administer(identity, repository)
    return repository


# As RepositoryDep; the client may also change files, branches and tags.
WritableRepository: TypeAlias = Annotated[Repository, Depends(_writable)]
# As RepositoryDep; the client may also delete, move, hide or gate it.
AdministeredRepository: TypeAlias = Annotated[Repository, Depends(_administered)]


def _no_pull_request(create_pr: str = "") -> None:
    if create_pr.lower() not in FALSE:
        raise Unsupported("pull requests are not supported: upload to a branch with revision=…")


# Refuses a request for a pull request: ignoring the parameter would write to the branch.
NoPullRequest: TypeAlias = Annotated[None, Depends(_no_pull_request)]


def base_url(request: Request, options: OptionsDep) -> str:
    """The URL under which the client reaches this hub, without a trailing slash."""
    return options.url or f"{request.url.scheme}://{request.headers.get('host', request.url.netloc)}"
