"""The visitor of a page, for its menu, and the forms that visitors send.

Forms need the session of a browser. Programs need a token in a header, which no other site can make a browser send;
there a session counts only for reading, see get_identity.

A form is accepted only with the session's cookie and its form token, and if headers that browsers set, and scripts
can't, say that it was sent from a page of this hub. None of its fields is used before that.
"""

import hmac
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias
from urllib.parse import quote, urlsplit

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from kcard.errors import CardError, UsageError
from kcard.hub.accounts import Identity
from kcard.hub.errors import Forbidden, Invalid, Refused, Unauthenticated
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    ServerOptions,
    SessionDep,
    base_url,
    form_token,
    read_session_cookie,
)
from kcard.hub.server.responses import status_of
from kcard.hub.services import HubServices
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
    token = ""
    if id_:
        token = form_token(hub.secret, id_)
    if session is not None:
        identity = session.identity
    current = Visitor(session, identity, token, options.chat)
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


# Where a browser is redirected after the login: only to paths of this hub.
HOME = "/"
# One slash, not followed by another or by a backslash, which browsers treat as a slash; no characters that they drop or
# decode.
OWN_PATH = re.compile(r"/(?![/\\])[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,1000}")


def next_path(text: str) -> str:
    """Return the path if it is one of this hub, otherwise the home page."""
    return text if OWN_PATH.fullmatch(text) else HOME


MAX_FIELD_BYTES = 4_000_000  # the body is limited by BodyLimit
MAX_FIELDS = 200


@dataclass
class Form:
    """The values of a form, and its errors: messages by the name of their field, "" for the whole form."""

    values: Mapping[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    status: int = 200

    def text(self, name: str) -> str:
        """Return the value of a field, without space around it; "" if missing."""
        return self.values.get(name, "").strip()

    def choice(self, name: str, *choices: str) -> str:
        """Return the value of a field with choices. Raises Invalid for any other value."""
        value = self.text(name)
        if value not in choices:
            raise Invalid(f"unknown choice {value[:40]!r}: use {', '.join(choices)}")
        return value

    @contextmanager
    def errors_at(self, name: str) -> Iterator[None]:
        """Show an error that the block raises at a field, and leave the block."""
        try:
            yield
        except (Refused, UsageError, CardError) as error:
            self.errors[name] = str(error)
            self.status = status_of(error)


async def read_form(request: Request, hub: HubDep, options: OptionsDep, session: SessionDep) -> Form:
    require_same_origin(request, options)
    sent = await request.form(max_files=0, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES)
    values = {key: value for key, value in sent.items() if isinstance(value, str)}
    if any("\0" in value for value in values.values()):  # PostgreSQL can't store it in text
        raise Invalid("the form contains a NUL character")
    require_form_token(hub, options, request, values)
    # The session, or a role of its account, may have ended while the form was sent.
    if session is not None:
        id_ = read_session_cookie(request, base_url(request, options))
        if await run_in_threadpool(hub.sessions.find, id_) != session:
            raise LoginNeeded(None)
    return Form(values)


FormDep: TypeAlias = Annotated[Form, Depends(read_form)]


def require_same_origin(request: Request, options: ServerOptions) -> None:
    """Raise Forbidden unless a page of this hub sent the request."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    parts = urlsplit(base_url(request, options))
    own = f"{parts.scheme}://{parts.netloc}".lower()
    if (site is None and origin is None) or site not in {None, "same-origin"} or origin not in {None, own}:
        raise Forbidden(f"the form was not sent from a page of this hub: open {own} and try again")


def require_form_token(
    hub: HubServices, options: ServerOptions, request: Request, values: Mapping[str, str]
) -> None:
    """Raise Forbidden unless the form was made for this browser in its current session."""
    id_ = read_session_cookie(request, base_url(request, options))
    own = form_token(hub.secret, id_)
    if not id_ or not hmac.compare_digest(values.get("form_token", "").encode(), own.encode()):
        raise Forbidden("the form is from another session, or cookies are off: reload its page and try again")
