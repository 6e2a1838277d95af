"""FastAPI dependencies of the routes: the hub, the visitor, the repository."""

import hashlib
import hmac
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import AfterValidator
from starlette.responses import Response

from kcard.hub import permissions
from kcard.hub.accounts import Identity
from kcard.hub.db.models import Repository, RepositoryType
from kcard.hub.errors import Invalid, NotFound, Unauthenticated, Unsupported
from kcard.hub.permissions import (
    GRANTED,
    LOGIN,
    repository_not_found,
    require_administer,
    require_write,
)
from kcard.hub.services import HubServices
from kcard.hub.tokens import MAX_SESSION, Login

Visibility: TypeAlias = Literal["public", "private"]


@dataclass(frozen=True)
class ServerOptions:
    """The options of `kcard hub serve` that the application uses.

    url             the hub's public URL, without a trailing slash; None: from each request
    max_file_size   bytes of the largest file
    max_regular     bytes of the largest file inside a commit
    max_commit      bytes of the largest commit request
    part_size       bytes of a part of a large file
    quota           default quota of a namespace in bytes; None: no limit
    visibility      of a new repository whose creator does not choose
    exam            whether a card with a model needs an exam to be published
    rate            downloads a minute from one account or address, other requests cost more; 0: no limit
    counts          the file for the rate limit of all workers; None: only this process
    chat            the URL of a page to ask (kcard serve), which the pages link to; None: they don't
    """

    url: str | None = None
    max_file_size: int = 50_000_000_000
    max_regular: int = 4_000_000
    max_commit: int = 64_000_000
    part_size: int = 1_000_000_000
    quota: int | None = None
    visibility: Visibility = "public"
    exam: Literal["required", "optional"] = "required"
    rate: int = 3000
    counts: str | None = None
    chat: str | None = None


def decode_segment(text: str) -> str:
    """Decode the percent-encoding of a part of a path. Raises Invalid."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Invalid(f"path {text[:80]!r} is not UTF-8") from None


async def refuse_nul(request: Request) -> None:
    """Raise Invalid for a NUL in the path or query, which PostgreSQL can't store. All endpoints depend on it."""
    sent = request.scope["path"] + "?" + request.scope["query_string"].decode("latin-1")
    if "%00" in sent or "\0" in sent:
        raise Invalid("the path or the query contains a NUL character: remove %00")


# One segment of a path, decoded, which may contain quoted slashes; or its rest, in a route with {name:path}. A default
# is for routes without it.
Segment: TypeAlias = Annotated[str, AfterValidator(decode_segment)]


COOKIE = "kcard_session"
# Browsers accept this prefix only for a cookie that is Secure, for the whole host and for no other.
SECURE_COOKIE = "__Host-kcard_session"
SESSION_ID = re.compile(r"[A-Za-z0-9_-]{20,100}")


def read_session_cookie(request: Request, url: str) -> str:
    """Return the id of the session that a browser sent; "" without one. `url` is the hub's."""
    cookie = request.cookies.get(_cookie_name(url), "")
    return cookie if SESSION_ID.fullmatch(cookie) else ""


def write_session_cookie(response: Response, url: str, id_: str) -> None:
    """Set the cookie with the id of a session; "" deletes it."""
    response.set_cookie(
        _cookie_name(url),
        id_,
        max_age=int(MAX_SESSION.total_seconds()) if id_ else 0,
        path="/",
        secure=url.startswith("https:"),
        httponly=True,
        samesite="lax",
    )


def form_token(secret: bytes, id_: str) -> str:
    """Return the token that proves that a form was made for the browser with this cookie.

    Other sites can read neither of the two.
    """
    return hmac.digest(secret, b"form." + hashlib.sha256(id_.encode()).digest(), "sha256").hex()


def _cookie_name(url: str) -> str:
    return SECURE_COOKIE if url.startswith("https:") else COOKIE


NO_NUL = r"\A[^\x00]*\z"  # of a text in a body: PostgreSQL can't store NUL
HOST = re.compile(r"([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{0,5})?")
TYPES: dict[str, RepositoryType] = {"models": "model", "datasets": "dataset"}
FALSE = frozenset(["", "0", "false"])
READS = frozenset(["GET", "HEAD"])
API = "/api/"


async def get_hub(request: Request) -> HubServices:
    hub: HubServices = request.app.state.hub
    return hub


async def get_options(request: Request) -> ServerOptions:
    options: ServerOptions = request.app.state.options
    return options


HubDep: TypeAlias = Annotated[HubServices, Depends(get_hub)]
OptionsDep: TypeAlias = Annotated[ServerOptions, Depends(get_options)]


async def get_session(request: Request, hub: HubDep, options: OptionsDep) -> Login | None:
    id_ = read_session_cookie(request, base_url(request, options))
    if not id_ or "authorization" in request.headers or request.scope["path"].startswith(API):
        return None
    session = await run_in_threadpool(hub.sessions.find, id_)
    if session is not None:
        request.state.account = session.identity.name
    return session


# The session of a browser, outside of the API. An endpoint that changes something must check the form (web/render.py).
SessionDep: TypeAlias = Annotated[Login | None, Depends(get_session)]


async def get_identity(request: Request, hub: HubDep, session: SessionDep) -> Identity | None:
    """Return the identity of the token, or of a browser's session when it reads outside of the API.

    Sessions don't count for changes, since other sites can make browsers send their cookie.
    """
    header = request.headers.get("authorization")
    if header is None:  # most reads: they need no thread
        return session.identity if session is not None and request.method in READS else None
    kind, _, token = header.partition(" ")
    token = token.strip()
    if kind.lower() != "bearer" or not token:
        raise Unauthenticated("invalid Authorization header: use 'Bearer TOKEN'")
    identity = await run_in_threadpool(hub.tokens.identify, token)
    if identity is None:
        raise Unauthenticated("invalid token: it was revoked, has expired, or belongs to another hub")
    request.state.account = identity.name
    return identity


OptionalIdentity: TypeAlias = Annotated[Identity | None, Depends(get_identity)]


async def require_identity(identity: OptionalIdentity) -> Identity:
    if identity is None:
        raise Unauthenticated(LOGIN)
    return identity


RequiredIdentity: TypeAlias = Annotated[Identity, Depends(require_identity)]


def repository_type(types: str) -> RepositoryType:
    """Return the type for the path segment `models` or `datasets`. Raises NotFound for any other."""
    if types not in TYPES:
        raise NotFound("repository", f"unknown repository type {types[:40]!r}: use models or datasets")
    return TYPES[types]


def get_repository(
    hub: HubServices, type_: RepositoryType, name: str, identity: Identity | None
) -> Repository:
    """Return the repository, if the client may read it. Raises the same NotFound for a private and a missing one."""
    try:
        return hub.repositories.readable(type_, name, identity)
    except NotFound:
        raise repository_not_found(name, identity) from None


def has_access(hub: HubServices, identity: Identity | None, repository: Repository) -> bool:
    """Return whether the account was granted access to a gated repository."""
    if identity is None or repository.gated == "no":
        return False
    return hub.repositories.access_state(repository, identity.account_id) == GRANTED


def require_download(hub: HubServices, identity: Identity | None, repository: Repository) -> None:
    """Raise NotFound if the client may not read the repository, Gated if it may not have its files."""
    permissions.require_download(identity, repository, has_access(hub, identity, repository))


def get_api_repository(
    types: Segment, namespace: Segment, name: Segment, hub: HubDep, identity: OptionalIdentity
) -> Repository:
    return get_repository(hub, repository_type(types), f"{namespace}/{name}", identity)


# The repository of a route /api/{types}/{namespace}/{name}/…, which the client may read.
RepositoryDep: TypeAlias = Annotated[Repository, Depends(get_api_repository)]


def web_type(request: Request) -> RepositoryType:
    """Return the type of repository that a path outside of /api names: datasets are under /datasets."""
    return "dataset" if request.scope["path"].startswith("/datasets/") else "model"


def get_web_repository(
    request: Request, namespace: Segment, name: Segment, hub: HubDep, identity: OptionalIdentity
) -> Repository:
    return get_repository(hub, web_type(request), f"{namespace}/{name}", identity)


# The repository of a route /{namespace}/{name}/… or /datasets/{namespace}/{name}/…, which the client may read.
WebRepository: TypeAlias = Annotated[Repository, Depends(get_web_repository)]


def get_writable_repository(repository: RepositoryDep, identity: OptionalIdentity) -> Repository:
    require_write(identity, repository)
    return repository


def get_administered_repository(repository: RepositoryDep, identity: OptionalIdentity) -> Repository:
    require_administer(identity, repository)
    return repository


# As RepositoryDep, for clients that may also change files, branches and tags.
WritableRepository: TypeAlias = Annotated[Repository, Depends(get_writable_repository)]
# As RepositoryDep, for clients that may also delete, move, hide or gate it.
AdministeredRepository: TypeAlias = Annotated[Repository, Depends(get_administered_repository)]


def refuse_pull_request(create_pr: str = "") -> None:
    if create_pr.lower() not in FALSE:
        raise Unsupported("pull requests are not supported: upload to a branch with revision=…")


# Refuses a request for a pull request: ignoring the parameter would write to the branch.
NoPullRequest: TypeAlias = Annotated[None, Depends(refuse_pull_request)]


def base_url(request: Request, options: OptionsDep) -> str:
    """Return the URL under which the client reaches this hub, without a trailing slash.

    Raises Invalid for a Host header that names no host.
    """
    if options.url:
        return options.url
    host = request.headers.get("host") or request.url.netloc
    with suppress(ValueError):  # of urlsplit, for brackets without an IPv6 address in them
        if HOST.fullmatch(host) and urlsplit(f"//{host}").netloc == host:
            return f"{request.url.scheme}://{host}"
    raise Invalid(f"invalid Host header {host[:80]!r}")
