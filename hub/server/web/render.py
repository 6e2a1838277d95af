"""Pages from templates, and errors as pages."""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from fastapi import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from kcard.errors import KcardError
from kcard.hub.db.models import Repository
from kcard.hub.errors import Gated, NotFound, Refused
from kcard.hub.server.responses import make_json_error
from kcard.hub.server.web.forms import LoginNeeded, visitor
from kcard.hub.values import format_score

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).with_name("templates")
UNITS = ("B", "kB", "MB", "GB", "TB")


def page(template: str, status: int = 200, headers: dict[str, str] | None = None, **values: Any) -> Response:
    """Return a page from a template; its policy allows the hub's style sheet and script by their hashes.

    A page for an account, or with a form token, must not be cached.
    """
    current = values.setdefault("visitor", visitor.get())
    values.setdefault("here", "")
    security = {
        "Content-Security-Policy": policy(),
        "Vary": "Accept, Authorization, Cookie",
        # With a stricter policy, browsers would not send the origin of a form.
        "Referrer-Policy": "same-origin",
    }
    if current.identity is not None or current.form_token:
        security["Cache-Control"] = "no-store"
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
        address=page_address,
    )
    environment.filters.update(
        size=format_size,
        count=format_count,
        share=format_score,
        percent=format_percent,
        short=shorten,
    )
    return environment


@cache
def read_template(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def page_address(repository: Repository, *parts: str, path: str = "") -> str:
    """Return the quoted address of a repository's page, or of a page below it; a revision is one part of it.

    `path`: of a file, with which the address ends.
    """
    address = repository.path
    for part in parts:
        address += f"/{quote(part, safe='')}"
    return f"{address}/{quote(path)}" if path else address


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
SOMETHING_WRONG = "Something went wrong"


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
    title = TITLES.get(404 if isinstance(error, NotFound) else status, SOMETHING_WRONG)
    why = str(error) if isinstance(error, Refused) or status < 500 else ""
    path = request.scope["path"] if request.method == "GET" else ""
    return page(
        "refusal.html", status, headers, title=title, why=why, gated=isinstance(error, Gated), path=path
    )


def make_crash_response(request: Request, identifier: str) -> Response:
    """Return the response for an unexpected error, which the log has under this identifier."""
    why = f"internal error: see the hub's log for request {identifier}"
    if not wants_html(request):
        return JSONResponse({"error": why}, 500)
    return page("refusal.html", 500, title=SOMETHING_WRONG, why=why, gated=False, path="")


def wants_html(request: Request) -> bool:
    """Return whether errors are shown as pages."""
    return "text/html" in request.headers.get("accept", "") and not request.scope["path"].startswith("/api/")
