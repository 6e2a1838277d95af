"""Renders templates as pages that load nothing from elsewhere and run only the hub's own script."""

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import HTMLResponse, Response

from kcard.hub.repositories.values import Repository
from kcard.hub.server.forms.form import Form
from kcard.hub.server.page.card_views import address
from kcard.hub.server.visitor import visitor

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["TEMPLATES", "page", "policy", "rendered"]

TEMPLATES = Path(__file__).with_name("templates")
# What XML can't contain.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
UNITS = ("B", "kB", "MB", "GB", "TB")


def page(template: str, status: int = 200, headers: dict[str, str] | None = None, **values: Any) -> Response:
    """A page from a template; its policy allows the hub's style sheet and script by their hashes.

    What is made for an account, or has a form token, stays in no cache.
    """
    looks = values.setdefault("visitor", visitor.get())
    security = {
        "Content-Security-Policy": policy(),
        "Vary": "Accept, Authorization, Cookie",
        # Browsers name their origin with a form only if its page may be referred to.
        "Referrer-Policy": "same-origin",
    }
    if looks.identity is not None or looks.form_token:
        security["Cache-Control"] = "no-store"
    values = {"here": "", **values}
    return HTMLResponse(rendered(template, **values), status, {**(headers or {}), **security})


def rendered(template: str, **values: Any) -> str:
    """The text of a template."""
    return _environment().get_template(template).render(**values)


@cache
def policy() -> str:
    """Allows the one style sheet, the one script, the hub's own pictures, and forms that lead back to the hub."""
    return (
        f"default-src 'none'; style-src {_digest(_style())}; script-src {_digest(_text('script.js'))}; "
        "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _style() -> str:
    return _text("style.css") + _text("forms.css")


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        style=_style(), script=_text("script.js"), at=_at, address=_address, blob=_blob, no_form=Form()
    )
    environment.filters.update(size=_size, count=_count, share=_share, short=_short, xml=_xml)
    return environment


@cache
def _text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _address(repository: Repository, *parts: str) -> str:
    """A quoted path below a repository's page; the last part may be a path."""
    quoted = [quote(part, safe="" if place < len(parts) - 1 else "/") for place, part in enumerate(parts)]
    return address(repository, *quoted)


def _at(repository: Repository, revision: str, what: str = "tree") -> str:
    """The page of a repository at a revision, which may contain slashes."""
    return address(repository, what, quote(revision, safe=""))


def _blob(repository: Repository, revision: str, path: str) -> str:
    """The page that shows a file."""
    return address(repository, "blob", quote(revision, safe=""), quote(path))


def _size(size: int) -> str:
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {UNITS[unit]}"


def _count(count: int) -> str:
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _share(value: float) -> str:
    """A number in [0, 1] with two digits."""
    return f"{value:.2f}"


def _short(text: str, most: int = 200) -> str:
    """The beginning of a text, which may be of any length."""
    return text if len(text) <= most else text[:most].rstrip() + "…"


def _xml(text: str) -> str:
    """A text without the characters that would break an XML document."""
    return NOT_XML.sub("", _short(text, 1000))
