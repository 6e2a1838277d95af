"""The list of cards and models, or of datasets: search, facets, order and page are all in the URL."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from kcard.hub.refusals import Invalid
from kcard.hub.repositories.search import FACTUALITY, ORDERS, Counts, SearchQuery
from kcard.hub.repositories.search_index import FACETS
from kcard.hub.repositories.values import Type
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, OptionsDep, base_url
from kcard.hub.server.limits import IN_TURN
from kcard.hub.server.page.card_views import listed
from kcard.hub.server.page.render import page

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

ROWS = 25
MOST_VALUES = 10  # of a facet
TITLES = {
    "domain": "Domain",
    "kind": "Kind",
    "base": "Base model",
    "language": "Language",
    "licence": "Licence",
}
SORTS = {
    "relevance": "best match",
    "factuality": "factuality",
    "downloads": "downloads",
    "date": "last changed",
}
Tags = Annotated[list[str], Query()]


@dataclass(frozen=True)
class Choice:
    """A value of a facet: its label, how many there are, its URL, and whether it is chosen. `depth`: of a domain."""

    label: str
    count: int
    url: str
    chosen: bool
    depth: int = 0


def _parameters(
    q: str = "",
    domain: str = "",
    kind: str = "",
    base: str = "",
    language: str = "",
    licence: str = "",
    verified: str = "",
    factuality: str = "",
    author: str = "",
    tag: Tags = [],  # noqa: B006 (FastAPI copies it)
    sort: str = "",
    page: str = "",
) -> dict[str, Any]:
    return dict(locals())


# The query parameters of a list.
Parameters = Annotated[dict[str, Any], Depends(_parameters)]


@router.get("/", dependencies=[IN_TURN])
@router.get("/datasets", dependencies=[IN_TURN])
def home(
    request: Request, hub: HubDep, identity: OptionalIdentity, options: OptionsDep, asked: Parameters
) -> Response:
    """The list of cards and models, or of datasets."""
    type_: Type = "model" if request.scope["path"] == "/" else "dataset"
    query = _query(type_, asked)
    rows, found = listed(hub, query, identity)
    path = request.scope["path"]
    return page(
        "home.html",
        rows=rows,
        found=found,
        query=query,
        asked=asked,
        here="cards" if type_ == "model" else "datasets",
        facets=_facets(path, asked, found.counts),
        chips=_chips(path, asked),
        sorts=[(name, title) for name, title in SORTS.items() if name != "relevance" or query.words],
        url=lambda **changed: _url(path, asked, **changed),
        path=path,
        hub_url=base_url(request, options),
        threshold=hub.registry.quarantine.threshold,
    )


def _query(type_: Type, asked: Mapping[str, Any]) -> SearchQuery:
    sort = asked["sort"] or "relevance"
    if sort not in ORDERS:
        raise Invalid(f"unknown sort {sort[:50]!r}: use {', '.join(ORDERS)}")
    return SearchQuery(
        type=type_,
        text=asked["q"],
        facets={facet: asked[facet] for facet in FACETS},
        author=asked["author"],
        tags=asked["tag"],
        verified=bool(asked["verified"]),
        factuality=_number(asked["factuality"], "factuality", float),
        sort=sort,
        page=_number(asked["page"] or "1", "page", int),
        size=ROWS,
    )


def _number(text: str, name: str, kind: type) -> Any:
    try:
        return kind(text) if text else None
    except ValueError:
        raise Invalid(f"invalid {name} {text[:50]!r}: use a number") from None


def _url(path: str, asked: Mapping[str, Any], **changed: Any) -> str:
    """The list with changed parameters, at its first page by default."""
    wanted = {**asked, "page": "", **changed}
    query = urlencode({name: value for name, value in wanted.items() if value}, doseq=True)
    return path + (f"?{query}" if query else "")


def _facets(path: str, asked: Mapping[str, Any], counts: Counts) -> list[tuple[str, list[Choice]]]:
    """Titles and choices of the facets that have any."""
    found = [("Domain", _domains(path, asked, counts.facets["domain"]))]
    chosen = asked["verified"] != ""
    verified = Choice(
        "Verified by this hub", counts.verified, _url(path, asked, verified="" if chosen else "1"), chosen
    )
    least = [
        Choice(
            f"verified, at least {value:.1f}",
            count,
            _url(path, asked, factuality="" if asked["factuality"] == f"{value}" else f"{value}"),
            asked["factuality"] == f"{value}",
        )
        for value, count in ((value, counts.factuality[value]) for value in FACTUALITY)
    ]
    found.append(("Factuality", [each for each in (verified, *least) if each.count or each.chosen]))
    for facet in ("kind", "base", "language", "licence"):
        found.append((TITLES[facet], _choices(path, asked, facet, counts.facets[facet])))
    return [(title, choices) for title, choices in found if choices]


def _choices(path: str, asked: Mapping[str, Any], facet: str, counts: Mapping[str, int]) -> list[Choice]:
    shown = dict([*counts.items()][:MOST_VALUES])
    if asked[facet]:
        shown.setdefault(asked[facet], counts.get(asked[facet], 0))
    return [
        Choice(
            value,
            count,
            _url(path, asked, **{facet: "" if asked[facet] == value else value}),
            asked[facet] == value,
        )
        for value, count in shown.items()
    ]


def _domains(path: str, asked: Mapping[str, Any], counts: Mapping[str, int]) -> list[Choice]:
    """The domains above the chosen one, itself, and those directly below it; without one, the top ones."""
    chosen = asked["domain"]
    parts = chosen.split("/") if chosen else []
    above = ["/".join(parts[: place + 1]) for place in range(len(parts))]
    start = f"{chosen}/" if chosen else ""
    below = (name for name in counts if name.startswith(start) and "/" not in name[len(start) :])
    return [
        Choice(
            domain.rpartition("/")[2],
            counts.get(domain, 0),
            _url(path, asked, domain=domain if domain != chosen else domain.rpartition("/")[0]),
            domain == chosen,
            domain.count("/"),
        )
        for domain in (*above, *islice(below, MOST_VALUES))
    ]


def _chips(path: str, asked: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What the list is narrowed by: label, URL without it, and what that does."""
    chips = [
        (asked[name], _url(path, asked, **{name: ""}), f"without {title} {asked[name]}")
        for name, title in TITLES.items()
        if asked[name]
    ]
    if asked["verified"]:
        chips.append(("verified", _url(path, asked, verified=""), "not only verified"))
    if asked["factuality"]:
        least = asked["factuality"]
        chips.append((f"factuality ≥ {least}", _url(path, asked, factuality=""), "with any factuality"))
    if asked["author"]:
        chips.append(
            (f"by {asked['author']}", _url(path, asked, author=""), f"not only by {asked['author']}")
        )
    for tag in asked["tag"]:
        others = [other for other in asked["tag"] if other != tag]
        chips.append((tag, _url(path, asked, tag=others), f"without tag {tag}"))
    return chips
