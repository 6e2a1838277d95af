"""Pages from templates, their forms, and errors as pages."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from kcard.errors import CardError, KcardError, UsageError
from kcard.hub.db.models import Repository
from kcard.hub.errors import Forbidden, Gated, Invalid, NotFound, Refused
from kcard.hub.server.dependencies import (
    HubDep,
    LoginNeeded,
    OptionsDep,
    ServerOptions,
    SessionDep,
    base_url,
    form_token,
    read_session_cookie,
    visitor,
)
from kcard.hub.server.responses import make_json_error, status_of
from kcard.hub.server.web.cards import page_address
from kcard.hub.services import HubServices
from kcard.hub.values import format_score

if TYPE_CHECKING:
    from jinja2 import Environment


TEMPLATES = Path(__file__).with_name("templates")
# What XML can't contain.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
UNITS = ("B", "kB", "MB", "GB", "TB")


def page(template: str, status: int = 200, headers: dict[str, str] | None = None, **values: Any) -> Response:
    """Return a page from a template; its policy allows the hub's style sheet and script by their hashes.

    A page for an account, or with a form token, must not be cached.
    """
    current = values.setdefault("visitor", visitor.get())
    security = {
        "Content-Security-Policy": policy(),
        "Vary": "Accept, Authorization, Cookie",
        # With a stricter policy, browsers would not send the origin of a form.
        "Referrer-Policy": "same-origin",
    }
    if current.identity is not None or current.form_token:
        security["Cache-Control"] = "no-store"
    values = {"here": "", **values}
    return HTMLResponse(render_template(template, **values), status, {**(headers or {}), **security})


def render_template(template: str, **values: Any) -> str:
    """Render a template to text."""
    return _get_environment().get_template(template).render(**values)


@cache
def policy() -> str:
    """Return the policy: the one style sheet, the one script, pictures of the hub, and forms that lead back to it."""
    return (
        f"default-src 'none'; style-src {_digest(read_style())}; script-src {_digest(read_template('script.js'))}; "
        "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def read_style() -> str:
    return read_template("style.css") + read_template("forms.css")


@cache
def _get_environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        style=read_style(),
        script=read_template("script.js"),
        at=revision_address,
        address=quoted_address,
        blob=blob_address,
        no_form=Form(),
    )
    environment.filters.update(
        size=format_size,
        count=format_count,
        share=format_score,
        percent=format_percent,
        short=shorten,
        xml=strip_for_xml,
    )
    return environment


@cache
def read_template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def quoted_address(repository: Repository, *parts: str) -> str:
    """Return a quoted path below a repository's page; the last part may be a path."""
    quoted = [quote(part, safe="" if place < len(parts) - 1 else "/") for place, part in enumerate(parts)]
    return page_address(repository, *quoted)


def revision_address(repository: Repository, revision: str, what: str = "tree") -> str:
    """Return the page of a repository at a revision, which may contain slashes."""
    return page_address(repository, what, quote(revision, safe=""))


def blob_address(repository: Repository, revision: str, path: str) -> str:
    """Return the page that shows a file."""
    return page_address(repository, "blob", quote(revision, safe=""), quote(path))


def format_size(size: int) -> str:
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {UNITS[unit]}"


def format_count(count: int) -> str:
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def format_percent(share: float) -> str:
    """Format a share in [0, 1] as whole percent."""
    return f"{share * 100:.0f}\N{NARROW NO-BREAK SPACE}%"


def shorten(text: str, most: int = 200) -> str:
    """Return the beginning of a text, which may be of any length."""
    return text if len(text) <= most else text[:most].rstrip() + "…"


def strip_for_xml(text: str) -> str:
    """Return a text without the characters that would break an XML document."""
    return NOT_XML.sub("", shorten(text, 1000))


# Errors as pages for browsers; other clients get the usual JSON.

TITLES = {
    400: "This request is not valid",
    401: "Not available without a login",
    403: "Not allowed",
    404: "Not found",
    409: "Conflict",
    413: "Too large",
    429: "Too many requests",
    501: "Not supported",
    503: "Not available at the moment",
}


def make_error_response(request: Request, error: KcardError) -> Response:
    """Return the response for an error: JSON in the API; elsewhere, for clients that prefer HTML, a page or a redirect
    to the login.
    """
    plain = make_json_error(error)
    if not wants_html(request):
        return plain
    if isinstance(error, LoginNeeded) and error.path is not None:
        return RedirectResponse(f"/login?{urlencode({'next': error.path})}", 303)
    headers = {
        name: value
        for name, value in plain.headers.items()
        if name.startswith("x-") or name in ("retry-after", "www-authenticate")
    }
    status = plain.status_code
    if status == 413:
        headers["Connection"] = "close"  # the body was not read
    return page(
        "refusal.html",
        status,
        headers,
        title=TITLES[404] if isinstance(error, NotFound) else TITLES.get(status, "Something went wrong"),
        why=str(error) if isinstance(error, Refused) or status < 500 else "",
        gated=isinstance(error, Gated),
        path=request.scope["path"] if request.method == "GET" else "",
        here="",
    )


def make_crash_response(request: Request, identifier: str) -> Response:
    """Return the response for an unexpected error, which the log has under this identifier."""
    why = f"internal error: see the hub's log for request {identifier}"
    if not wants_html(request):
        return JSONResponse({"error": why}, 500)
    return page("refusal.html", 500, title="Something went wrong", why=why, gated=False, path="", here="")


def wants_html(request: Request) -> bool:
    """Return whether errors are shown as pages."""
    return "text/html" in request.headers.get("accept", "") and not request.scope["path"].startswith("/api/")


# Forms: their fields, their protection against forgery, and where they redirect.
#
# A form is accepted only with the session's cookie and its form token, and if headers that browsers set, and scripts
# can't, say that it was sent from a page of this hub. None of its fields is used before that.

# Where a browser is redirected after the login: only to paths of this hub.

HOME = "/"
# One slash, not followed by another or by a backslash, which browsers treat as a slash; no characters that they drop or
# decode.
PATH = re.compile(r"/(?![/\\])[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,1000}")


def next_path(text: str) -> str:
    """Return the path if it is one of this hub, otherwise the home page."""
    return text if PATH.fullmatch(text) else HOME


TOKEN = "form_token"
LONGEST_FIELD = 4_000_000  # bytes; the body is limited by BodyLimit
MOST_FIELDS = 200


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

    def is_checked(self, name: str) -> bool:
        """Return whether a box is ticked."""
        return name in self.values

    def choice(self, name: str, *choices: str) -> str:
        """Return the value of a field with choices. Raises Invalid for any other value."""
        value = self.text(name)
        if value not in choices:
            raise Invalid(f"unknown choice {value[:40]!r}: use {', '.join(choices)}")
        return value

    def errors_at(self, name: str) -> "_ErrorHandler":
        """Show an error that the block raises at a field, and leave the block."""
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


async def read_form(request: Request, hub: HubDep, options: OptionsDep, session: SessionDep) -> Form:
    require_same_origin(request, options)
    values = read_fields(await request.form(max_files=0, max_fields=MOST_FIELDS, max_part_size=LONGEST_FIELD))
    require_form_token(hub, options, request, values)
    # The session, or a role of its account, may have ended while the form was sent.
    if session is not None:
        id_ = read_session_cookie(request, base_url(request, options))
        if await run_in_threadpool(hub.sessions.find, id_) != session:
            raise LoginNeeded(None)
    return Form(values)


def read_fields(sent: FormData) -> dict[str, str]:
    """Return the fields of a form, without its files. Raises Invalid for a NUL character."""
    values = {key: value for key, value in sent.items() if not isinstance(value, UploadFile)}
    if any("\0" in value for value in values.values()):  # PostgreSQL can't store it in text
        raise Invalid("the form contains a NUL character")
    return values


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
    if not id_ or not hmac.compare_digest(values.get(TOKEN, "").encode(), own.encode()):
        raise Forbidden("the form is from another session, or cookies are off: reload its page and try again")
