"""Two plain pages for people: what cards there are, and one card. No script runs in them, and nothing is loaded.

A page shows what its visitor may read. Browsers send no token, so that they see what is public.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import HTMLResponse, Response

from kcard.hub.accounts.identity import Identity
from kcard.hub.refusals import Refused
from kcard.hub.repositories.listing import SORTS, ListQuery
from kcard.hub.repositories.values import Repository, Type
from kcard.hub.server.asking import MaybeIdentity, Options, TheHub, base_url
from kcard.hub.server.errors import answer
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.page.card_views import address, card, listed
from kcard.hub.shared import SharedHub

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["page", "router"]

router = APIRouter(include_in_schema=False)

TEMPLATES = Path(__file__).with_name("templates")
ROWS = 25
ORDERS = {
    "lastModified": "last changed",
    "createdAt": "newest",
    "downloads": "downloads",
    "likes": "likes",
}
UNITS = ("B", "kB", "MB", "GB", "TB")
Tags = Annotated[list[str], Query()]


def _asked(
    q: str = "",
    author: str = "",
    tag: Tags = [],  # noqa: B006 (FastAPI copies it)
    sort: str = "lastModified",
    cursor: str = "",
) -> dict[str, Any]:
    """What the address of a list asks for."""
    return {"q": q, "author": author, "tag": tag, "sort": sort, "cursor": cursor}


Asked = Annotated[dict[str, Any], Depends(_asked)]


@router.get("/")
def models(request: Request, hub: TheHub, identity: MaybeIdentity, asked: Asked) -> Response:
    """The cards and models of the hub."""
    return _list(request, hub, identity, "model", asked)


@router.get("/datasets")
def datasets(request: Request, hub: TheHub, identity: MaybeIdentity, asked: Asked) -> Response:
    """Its datasets."""
    return _list(request, hub, identity, "dataset", asked)


@router.get("/{namespace}/{name}")
def model(
    request: Request,
    hub: TheHub,
    identity: MaybeIdentity,
    options: Options,
    namespace: Segment,
    name: Segment,
) -> Response:
    """A card or model."""
    return _card(request, hub, identity, options, "model", f"{namespace}/{name}")


@router.get("/{namespace}/{name}/commit/{revision}")
@router.get("/{namespace}/{name}/tree/{revision}")
def model_revision(
    request: Request,
    hub: TheHub,
    identity: MaybeIdentity,
    options: Options,
    namespace: Segment,
    name: Segment,
    revision: Segment,
) -> Response:
    """A card or model as of a branch, a tag or a commit."""
    return _card(request, hub, identity, options, "model", f"{namespace}/{name}", revision)


@router.get("/datasets/{namespace}/{name}")
def dataset(
    request: Request,
    hub: TheHub,
    identity: MaybeIdentity,
    options: Options,
    namespace: Segment,
    name: Segment,
) -> Response:
    """A dataset."""
    return _card(request, hub, identity, options, "dataset", f"{namespace}/{name}")


@router.get("/datasets/{namespace}/{name}/commit/{revision}")
@router.get("/datasets/{namespace}/{name}/tree/{revision}")
def dataset_revision(
    request: Request,
    hub: TheHub,
    identity: MaybeIdentity,
    options: Options,
    namespace: Segment,
    name: Segment,
    revision: Segment,
) -> Response:
    """A dataset as of a branch, a tag or a commit."""
    return _card(request, hub, identity, options, "dataset", f"{namespace}/{name}", revision)


def _list(
    request: Request, hub: SharedHub, identity: Identity | None, type_: Type, asked: dict[str, Any]
) -> Response:
    try:
        query = ListQuery(
            type=type_,
            search=asked["q"] or None,
            author=asked["author"] or None,
            filters=asked["tag"],
            sort=asked["sort"],
            limit=ROWS,
            cursor=asked["cursor"] or None,
        )
        rows, following = listed(hub, query, identity)
    except Refused as error:
        return _refusal(request, error)
    return page("list.html", rows=rows, following=following, asked=asked, type=type_, orders=ORDERS)


def _card(
    request: Request,
    hub: SharedHub,
    identity: Identity | None,
    options: Options,
    type_: Type,
    name: str,
    revision: str = "main",
) -> Response:
    try:
        view = card(hub, type_, name, revision, identity)
    except Refused as error:
        return _refusal(request, error)
    return page("card.html", view=view, type=type_, url=base_url(request, options))


def _refusal(request: Request, error: Refused) -> Response:
    """A page for browsers; programs get what every other endpoint answers."""
    if "text/html" not in request.headers.get("accept", ""):
        raise error
    plain = answer(error)
    headers = {name: value for name, value in plain.headers.items() if name.startswith("x-")}
    return page("refusal.html", plain.status_code, headers, why=str(error))


def page(template: str, status: int = 200, headers: dict[str, str] | None = None, **values: Any) -> Response:
    """A page from a template, with the policy that lets its one style sheet in and nothing else."""
    html = _environment().get_template(template).render(**values)
    return HTMLResponse(html, status, {**(headers or {}), "Content-Security-Policy": _policy()})


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
    environment.globals.update(style=_style(), at=_at, listing=_listing, address=_address)
    environment.filters.update(size=_size, count=_count)
    return environment


@cache
def _style() -> str:
    return (TEMPLATES / "style.css").read_text(encoding="utf-8")


@cache
def _policy() -> str:
    """Only the one style sheet and the hub's own pictures; a form leads back to the hub."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


def _address(repository: Repository, *parts: str) -> str:
    """The path of what belongs to a repository, each part quoted; the last one may be a path."""
    quoted = [quote(part, safe="" if place < len(parts) - 1 else "/") for place, part in enumerate(parts)]
    return address(repository, *quoted)


def _at(repository: Repository, revision: str) -> str:
    """The page of a repository at a revision, which may hold slashes."""
    return address(repository, "tree", quote(revision, safe=""))


def _listing(type_: Type, asked: dict[str, Any], **changed: Any) -> str:
    """The address of a list: what was asked, with changes, from its first page unless they say otherwise."""
    wanted = {**asked, "cursor": "", **changed}
    sort = "" if wanted["sort"] == "lastModified" else wanted["sort"]
    query = urlencode({k: v for k, v in {**wanted, "sort": sort}.items() if v}, doseq=True)
    return ("/datasets" if type_ == "dataset" else "/") + (f"?{query}" if query else "")


def _size(size: int) -> str:
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {UNITS[unit]}"


def _count(count: int) -> str:
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


assert ORDERS.keys() <= SORTS.keys()
