"""Forms: their fields, their protection against forgery, and where they redirect.

A form counts only with the session's cookie and its form token, and from a page of this hub, by the headers that
browsers set and scripts can't. Nothing of it is used before that.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.datastructures import FormData, UploadFile

from kcard.errors import CardError, UsageError
from kcard.hub.errors import Forbidden, Invalid, Refused
from kcard.hub.server import dependencies
from kcard.hub.server.dependencies import HubDep, OptionsDep, ServerOptions, SessionDep, base_url
from kcard.hub.server.responses import status_of
from kcard.hub.services import HubServices

__all__ = [
    "Form",
    "FormDep",
    "VisitorFormDep",
    "fields",
    "next_path",
    "require_form_token",
    "require_same_origin",
]


# Where a browser goes on after the login: only to paths of this hub.

HOME = "/"
# One slash, then no second one and no backslash, which browsers take for one; nothing that they drop or decode.
PATH = re.compile(r"/(?![/\\])[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,1000}")


def next_path(text: str) -> str:
    """Return the path if it is one of this hub, otherwise the home page."""
    return text if PATH.fullmatch(text) else HOME


TOKEN = "form_token"
LONGEST = 4_000_000  # bytes of a field; the body is limited by BodyLimit
MOST = 200  # fields


@dataclass
class Form:
    """The values of a form, and its errors: messages by the name of their field, "" for the whole form."""

    values: Mapping[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    status: int = 200

    def text(self, name: str) -> str:
        """Return the value of a field, without space around it; "" if missing."""
        return self.values.get(name, "").strip()

    def long_text(self, name: str) -> str:
        """Return the value of a text area, with Unix line ends."""
        return self.values.get(name, "").replace("\r\n", "\n").replace("\r", "\n")

    def checked(self, name: str) -> bool:
        """Return whether a box is ticked."""
        return name in self.values

    def choice(self, name: str, *choices: str) -> str:
        """Return the value of a field with choices. Raises Invalid for any other value."""
        value = self.text(name)
        if value not in choices:
            raise Invalid(f"unknown choice {value[:40]!r}: use {', '.join(choices)}")
        return value

    def beside(self, name: str) -> "_ErrorHandler":
        """Show an error of the block beside a field, and leave the block."""
        return _ErrorHandler(self, name)


@dataclass(frozen=True)
class _ErrorHandler:
    form: Form
    name: str

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, (Refused, UsageError, CardError)):
            return False
        self.form.errors[self.name] = str(error)
        self.form.status = status_of(error)
        return True


async def read_form(request: Request, hub: HubDep, options: OptionsDep) -> Form:
    return await _read_checked(request, hub, options, with_token=True)


async def read_visitor_form(request: Request, hub: HubDep, options: OptionsDep, session: SessionDep) -> Form:
    return await _read_checked(request, hub, options, with_token=session is not None)


async def _read_checked(
    request: Request, hub: HubServices, options: ServerOptions, *, with_token: bool
) -> Form:
    require_same_origin(request, options)
    values = fields(await request.form(max_files=0, max_fields=MOST, max_part_size=LONGEST))
    if with_token:
        require_form_token(hub, options, request, values)
    return Form(values)


def fields(sent: FormData) -> dict[str, str]:
    """Return the fields of a form, without its files. Raises Invalid for a NUL character."""
    values = {key: value for key, value in sent.items() if not isinstance(value, UploadFile)}
    if any("\0" in value for value in values.values()):  # PostgreSQL can't store it in text
        raise Invalid("the form contains a NUL character")
    return values


FormDep: TypeAlias = Annotated[Form, Depends(read_form)]
# As FormDep, for what visitors without a session may send too; theirs needs no token, since it acts for nobody.
VisitorFormDep: TypeAlias = Annotated[Form, Depends(read_visitor_form)]


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
    """Raise Forbidden unless the form was made for this browser, in the session that it is in now."""
    id_ = dependencies.read_session_cookie(request, base_url(request, options))
    own = dependencies.form_token(hub.secret, id_)
    if not id_ or not hmac.compare_digest(values.get(TOKEN, "").encode(), own.encode()):
        raise Forbidden("the form is from another session, or cookies are off: reload its page and try again")
