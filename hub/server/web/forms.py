"""Forms of pages: their fields, their protection against forgery, and where they redirect.

A form is accepted only with the session's cookie and its form token, and if headers that browsers set, and scripts
can't, say that it was sent from a page of this hub. None of its fields is used before that.
"""

import hmac
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from kcard.errors import CardError, UsageError
from kcard.hub.errors import Forbidden, Invalid, Refused
from kcard.hub.server.dependencies import (
    HubDep,
    OptionsDep,
    ServerOptions,
    SessionDep,
    base_url,
    form_token,
    read_session_cookie,
)
from kcard.hub.server.responses import status_of
from kcard.hub.server.web.visitors import LoginNeeded
from kcard.hub.services import HubServices

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
