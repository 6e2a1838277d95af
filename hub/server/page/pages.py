"""HTML pages: a list of cards, and one card. They run no scripts and load nothing.

Pages show what the client may read. Browsers send no token, so they see what is public.
"""

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import HTMLResponse, Response

from kcard.hub.refusals import Refused
from kcard.hub.repositories.figures import shown
from kcard.hub.repositories.listing import SORTS, ListQuery
from kcard.hub.repositories.values import Repository, Type
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, OptionsDep, base_url, web_type
from kcard.hub.server.errors import answer
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.page.card_views import address, card, listed
from kcard.hub.server.reading.recent import RecentDep
from kcard.hub.server.turns import IN_TURN

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


def _parameters(
    q: str = "",
    author: str = "",
    tag: Tags = [],  # noqa: B006 (FastAPI copies it)
    sort: str = "lastModified",
    cursor: str = "",
) -> dict[str, Any]:
    return {"q": q, "author": author, "tag": tag, "sort": sort, "cursor": cursor}


# The query parameters of a list.
Parameters = Annotated[dict[str, Any], Depends(_parameters)]


@router.get("/", dependencies=[IN_TURN])
@router.get("/datasets", dependencies=[IN_TURN])
def repositories(
    request: Request, hub: HubDep, identity: OptionalIdentity, parameters: Parameters
) -> Response:
    """The list of cards and models, or of datasets."""
    type_: Type = "model" if request.scope["path"] == "/" else "dataset"
    try:
        query = ListQuery(
            type=type_,
            search=parameters["q"] or None,
            author=parameters["author"] or None,
            filters=parameters["tag"],
            sort=parameters["sort"],
            limit=ROWS,
            cursor=parameters["cursor"] or None,
        )
        rows, following = listed(hub, query, identity)
    except Refused as error:
        return _refusal(request, error)
    return page("list.html", rows=rows, following=following, asked=parameters, type=type_, orders=ORDERS)


@router.get("/{namespace}/{name}", dependencies=[IN_TURN])
@router.get("/datasets/{namespace}/{name}", dependencies=[IN_TURN])
def repository(
    request: Request,
    hub: HubDep,
    recent: RecentDep,
    identity: OptionalIdentity,
    options: OptionsDep,
    namespace: Segment,
    name: Segment,
) -> Response:
    """A card, model or dataset, on branch main."""
    return repository_at(request, hub, recent, identity, options, namespace, name, "main")


@router.get("/{namespace}/{name}/commit/{revision}", dependencies=[IN_TURN])
@router.get("/{namespace}/{name}/tree/{revision}", dependencies=[IN_TURN])
@router.get("/datasets/{namespace}/{name}/commit/{revision}", dependencies=[IN_TURN])
@router.get("/datasets/{namespace}/{name}/tree/{revision}", dependencies=[IN_TURN])
def repository_at(
    request: Request,
    hub: HubDep,
    recent: RecentDep,
    identity: OptionalIdentity,
    options: OptionsDep,
    namespace: Segment,
    name: Segment,
    revision: Segment,
) -> Response:
    """A card, model or dataset at a revision."""
    type_ = web_type(request)
    try:
        view = card(hub, recent, type_, f"{namespace}/{name}", revision, identity)
    except Refused as error:
        return _refusal(request, error)
    return page("card.html", view=view, type=type_, url=base_url(request, options))


def _refusal(request: Request, error: Refused) -> Response:
    """An HTML page for browsers; other clients get the usual JSON."""
    if "text/html" not in request.headers.get("accept", ""):
        raise error
    plain = answer(error)
    headers = {name: value for name, value in plain.headers.items() if name.startswith("x-")}
    return page("refusal.html", plain.status_code, headers, why=str(error))


def page(template: str, status: int = 200, headers: dict[str, str] | None = None, **values: Any) -> Response:
    """A page from a template, with a policy that allows its style sheet only."""
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
    environment.globals.update(style=_style(), at=_at, listing=_listing, address=_address, figures=shown)
    environment.filters.update(size=_size, count=_count)
    return environment


@cache
def _style() -> str:
    return (TEMPLATES / "style.css").read_text(encoding="utf-8")


@cache
def _policy() -> str:
    """Allows the one style sheet, the hub's own pictures, and forms that lead back to the hub."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


def _address(repository: Repository, *parts: str) -> str:
    """A quoted path below a repository's page; the last part may be a path."""
    quoted = [quote(part, safe="" if place < len(parts) - 1 else "/") for place, part in enumerate(parts)]
    return address(repository, *quoted)


def _at(repository: Repository, revision: str) -> str:
    """The page of a repository at a revision, which may contain slashes."""
    return address(repository, "tree", quote(revision, safe=""))


def _listing(type_: Type, parameters: dict[str, Any], **changed: Any) -> str:
    """The path of a list with changed parameters, at its first page by default."""
    wanted = {**parameters, "cursor": "", **changed}
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
