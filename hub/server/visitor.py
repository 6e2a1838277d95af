"""Who looks at a page, for its menu and its forms.

Forms need the session of a browser. What a program may do needs a token in a header, which no other site can make a
browser send; sessions count there only for reading, see dependencies.py.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, TypeAlias
from urllib.parse import quote

from fastapi import Depends, Request

from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.sessions import Session
from kcard.hub.refusals import Unknown
from kcard.hub.repositories.permissions import is_administrator, require_administrator
from kcard.hub.repositories.values import Repository
from kcard.hub.server import session_cookie
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    SessionDep,
    base_url,
    get_repository,
    web_type,
)
from kcard.hub.server.middleware.raw_path import Segment

__all__ = [
    "AdministratorDep",
    "LoginNeeded",
    "MemberDep",
    "MemberRepository",
    "Visitor",
    "VisitorDep",
    "remember",
    "visitor",
]


@dataclass(frozen=True)
class Visitor:
    """The client of a page.

    session     None: nobody is logged in
    identity    of the session or of the client's token; None: nobody's
    form_token  goes with every form; "" without a cookie
    asks        whether the hub answers questions on its pages
    """

    session: Session | None = None
    identity: Identity | None = None
    form_token: str = ""
    asks: bool = False

    @property
    def administers(self) -> bool:
        """Whether the session is an administrator's, with a token of scope admin."""
        return self.session is not None and is_administrator(self.session.identity)


# The visitor of the request that is being answered, for the menu of every page.
visitor: ContextVar[Visitor] = ContextVar("kcard.visitor", default=Visitor())  # noqa: B039 (frozen)


class LoginNeeded(Unknown):
    """The page needs a session. `path`: where to go on after the login; None: a form was sent."""

    def __init__(self, path: str | None) -> None:
        super().__init__("you are not logged in, or your session has ended: log in and send the form again")
        self.path = path


async def remember(
    request: Request, hub: HubDep, options: OptionsDep, session: SessionDep, identity: OptionalIdentity
) -> Visitor:
    """The visitor; pages that are rendered for this request show it."""
    id_ = session_cookie.read(request, base_url(request, options))
    token = session_cookie.form_token(hub.secret, id_) if id_ else ""
    found = Visitor(
        session, identity if session is None else session.identity, token, options.asking is not None
    )
    visitor.set(found)
    return found


VisitorDep: TypeAlias = Annotated[Visitor, Depends(remember)]


async def _member(request: Request, visitor: VisitorDep) -> Identity:
    if visitor.session is None:
        raise LoginNeeded(_path(request) if request.method == "GET" else None)
    return visitor.session.identity


# The identity of a session; without one the browser is sent to the login page.
MemberDep: TypeAlias = Annotated[Identity, Depends(_member)]


def _repository(
    request: Request, namespace: Segment, name: Segment, hub: HubDep, member: MemberDep
) -> Repository:
    return get_repository(hub, web_type(request), f"{namespace}/{name}", member)


# As WebRepository, which the session may read.
MemberRepository: TypeAlias = Annotated[Repository, Depends(_repository)]


async def _administrator(member: MemberDep) -> Identity:
    require_administrator(member)
    return member


# As MemberDep, of an administrator of the hub with a token of scope admin.
AdministratorDep: TypeAlias = Annotated[Identity, Depends(_administrator)]


def _path(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return quote(request.scope["path"], safe="/%") + query
