"""The visitor of a page, for its menu and its forms.

Forms need the session of a browser. Programs need a token in a header, which no other site can make a browser send;
there a session counts only for reading, see get_identity.
"""

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, TypeAlias
from urllib.parse import quote

from fastapi import Depends, Request

from kcard.hub.accounts import Identity
from kcard.hub.db.models import Repository
from kcard.hub.errors import Unauthenticated
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    Segment,
    SessionDep,
    base_url,
    form_token,
    get_repository,
    read_session_cookie,
    web_type,
)
from kcard.hub.tokens import Login


@dataclass(frozen=True)
class Visitor:
    """The client of a page.

    session     None: not logged in
    identity    of the session or of the client's token; None: anonymous
    form_token  the token that every form must contain; "" without a cookie
    chat        see ServerOptions
    """

    session: Login | None = None
    identity: Identity | None = None
    form_token: str = ""
    chat: str | None = None


# The visitor of the request that is being answered, for the menu of every page.
visitor: ContextVar[Visitor] = ContextVar("kcard.visitor", default=Visitor())  # noqa: B039 (frozen)


class LoginNeeded(Unauthenticated):
    """The page needs a session. `path`: where to go on after the login; None: a form was sent."""

    def __init__(self, path: str | None) -> None:
        super().__init__("you are not logged in, or your session has ended: log in and send the form again")
        self.path = path


async def remember_visitor(
    request: Request, hub: HubDep, options: OptionsDep, session: SessionDep, identity: OptionalIdentity
) -> Visitor:
    """Return the visitor, and set it for the pages that are rendered for this request."""
    id_ = read_session_cookie(request, base_url(request, options))
    token = form_token(hub.secret, id_) if id_ else ""
    current = Visitor(session, identity if session is None else session.identity, token, options.chat)
    visitor.set(current)
    return current


VisitorDep: TypeAlias = Annotated[Visitor, Depends(remember_visitor)]


async def get_member(request: Request, visitor: VisitorDep) -> Identity:
    if visitor.session is None:
        query = f"?{request.url.query}" if request.url.query else ""
        path = quote(request.scope["path"], safe="/%") + query
        raise LoginNeeded(path if request.method == "GET" else None)
    return visitor.session.identity


# The identity of a session; a browser without one is redirected to the login page.
MemberDep: TypeAlias = Annotated[Identity, Depends(get_member)]


def get_member_repository(
    request: Request, namespace: Segment, name: Segment, hub: HubDep, member: MemberDep
) -> Repository:
    return get_repository(hub, web_type(request), f"{namespace}/{name}", member)


# As WebRepository, which the session may read.
MemberRepository: TypeAlias = Annotated[Repository, Depends(get_member_repository)]
