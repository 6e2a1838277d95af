"""The lists of cards and datasets with their search, the leaderboard, and the icon."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from kcard.hub import versions as card_versions
from kcard.hub.db.models import RepositoryType, Version
from kcard.hub.errors import Invalid
from kcard.hub.search import FACTUALITY, ORDERS, Counts, SearchQuery
from kcard.hub.search_index import FACETS
from kcard.hub.server.concurrency import EXPENSIVE
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, OptionsDep, base_url
from kcard.hub.server.web.cards import make_rows
from kcard.hub.server.web.measurements import Trust, load_trust
from kcard.hub.server.web.render import page, read_template
from kcard.hub.services import HubServices
from kcard.hub.values import format_score

router = APIRouter(include_in_schema=False)

Number = TypeVar("Number", int, float)

DAY = "public, max-age=86400"
ROWS = 25
MAX_VALUES = 10  # of a facet
MAX_LEADERS, MAX_UNRANKED, MAX_DOMAINS = 100, 20, 30
MIN_LEADER_DOCUMENTS = 30
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


@router.get("/favicon.svg", dependencies=[EXPENSIVE])
@router.get("/favicon.ico", dependencies=[EXPENSIVE])
def icon() -> Response:
    """Return the SVG icon, even to browsers that support only ICO."""
    return Response(read_template("favicon.svg"), media_type="image/svg+xml", headers={"Cache-Control": DAY})


@dataclass(frozen=True)
class FacetChoice:
    """A value of a facet: its label, count and URL, and whether it is chosen; `depth`: of a domain."""

    label: str
    count: int
    url: str
    chosen: bool
    depth: int = 0


@dataclass(frozen=True)
class ListAddress:
    """The address of a list: its path and its query parameters."""

    path: str
    parameters: Mapping[str, Any]

    def url(self, **changed: Any) -> str:
        """Return the URL with changed parameters, at the first page by default."""
        merged = {**self.parameters, "page": "", **changed}
        query = urlencode({name: value for name, value in merged.items() if value}, doseq=True)
        return f"{self.path}?{query}".rstrip("?")

    def choice(self, facet: str, value: str, count: int, label: str = "", depth: int = 0) -> FacetChoice:
        """Return a value of a facet, whose URL chooses it; if it is chosen, its URL chooses none."""
        is_chosen = self.parameters[facet] == value
        chosen_next = value
        if is_chosen:
            chosen_next = ""
        return FacetChoice(label or value, count, self.url(**{facet: chosen_next}), is_chosen, depth)


def read_parameters(
    q: str = "",
    domain: str = "",
    kind: str = "",
    base: str = "",
    language: str = "",
    licence: str = "",
    verified: str = "",
    factuality: str = "",
    author: str = "",
    tag: Annotated[list[str], Query()] = [],  # noqa: B006 (FastAPI copies it)
    sort: str = "",
    page: str = "",
) -> dict[str, Any]:
    verified = "1" if verified else ""
    return dict(locals())


@router.get("/", dependencies=[EXPENSIVE])
@router.get("/datasets", dependencies=[EXPENSIVE])
def home(
    request: Request,
    hub: HubDep,
    identity: OptionalIdentity,
    options: OptionsDep,
    parameters: Annotated[dict[str, Any], Depends(read_parameters)],
) -> Response:
    """Show the list of cards and models, or of datasets."""
    address = ListAddress(request.scope["path"], parameters)
    type_: RepositoryType = "model" if address.path == "/" else "dataset"
    query = _make_query(type_, parameters)
    matches = hub.search.find(query, identity)
    return page(
        "home.html",
        rows=make_rows(hub, matches.repositories),
        matches=matches,
        query=query,
        parameters=parameters,
        here="cards" if type_ == "model" else "datasets",
        facets=_list_facets(address, matches.counts),
        chips=_list_chips(address),
        sorts=[(name, title) for name, title in SORTS.items() if name != "relevance" or query.words],
        url=address.url,
        path=address.path,
        hub_url=base_url(request, options),
        threshold=hub.registry.quarantine.threshold,
    )


def _make_query(type_: RepositoryType, parameters: Mapping[str, Any]) -> SearchQuery:
    sort = parameters["sort"] or "relevance"
    if sort not in ORDERS:
        raise Invalid(f"unknown sort {sort[:50]!r}: use {', '.join(ORDERS)}")
    least = parameters["factuality"]
    return SearchQuery(
        type=type_,
        text=parameters["q"],
        facets={facet: parameters[facet] for facet in FACETS},
        author=parameters["author"],
        tags=parameters["tag"],
        verified=bool(parameters["verified"]),
        factuality=_parse_number(least, "factuality", float) if least else None,
        sort=sort,
        page=_parse_number(parameters["page"] or "1", "page", int),
        size=ROWS,
    )


def _parse_number(text: str, name: str, kind: type[Number]) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise Invalid(f"invalid {name} {text[:50]!r}: use a number") from None


def _list_facets(address: ListAddress, counts: Counts) -> list[tuple[str, list[FacetChoice]]]:
    """Return the title and the choices of each facet that has any."""
    measured = [address.choice("verified", "1", counts.verified, "Measured by this hub")]
    for value in FACTUALITY:
        label = f"measured, at least {format_score(value).rstrip('0')}"
        measured.append(address.choice("factuality", f"{value}", counts.factuality[value], label))
    facets = [
        ("Domain", _list_domains(address, counts.facets["domain"])),
        ("Factuality", [choice for choice in measured if choice.count or choice.chosen]),
    ]
    for facet in ("kind", "base", "language", "licence"):
        shown = dict([*counts.facets[facet].items()][:MAX_VALUES])
        chosen = address.parameters[facet]
        if chosen:
            shown.setdefault(chosen, counts.facets[facet].get(chosen, 0))
        choices = [address.choice(facet, value, count) for value, count in shown.items()]
        facets.append((TITLES[facet], choices))
    return [(title, choices) for title, choices in facets if choices]


def _list_domains(address: ListAddress, counts: Mapping[str, int]) -> list[FacetChoice]:
    """Return the chosen domain with those above and directly below it; if none is chosen, the top-level ones."""
    chosen = address.parameters["domain"]
    below = [name for name in counts if name.rpartition("/")[0] == chosen]
    choices = []
    for domain in (*list_above(chosen), *below[:MAX_VALUES]):
        parent, _, own_name = domain.rpartition("/")
        url = address.url(domain=domain)
        if domain == chosen:
            url = address.url(domain=parent)
        choices.append(FacetChoice(own_name, counts.get(domain, 0), url, domain == chosen, domain.count("/")))
    return choices


def list_above(domain: str) -> list[str]:
    """Return the domains above a domain, the outermost first, and the domain; none if it is empty."""
    if not domain:
        return []
    return [*accumulate(domain.split("/"), "{}/{}".format)]


def _list_chips(address: ListAddress) -> list[tuple[str, str, str]]:
    """Return the active filters of the list: label, URL without the filter, and what removing it does."""
    values = address.parameters
    chips = []
    for name, title in TITLES.items():
        if values[name]:
            chips.append((values[name], address.url(**{name: ""}), f"without {title} {values[name]}"))
    if values["verified"]:
        chips.append(("measured", address.url(verified=""), "not only measured"))
    if values["factuality"]:
        label = f"factuality ≥ {values['factuality']}"
        chips.append((label, address.url(factuality=""), "with any factuality"))
    if values["author"]:
        author = values["author"]
        chips.append((f"by {author}", address.url(author=""), f"not only by {author}"))
    for tag in values["tag"]:
        others = [other for other in values["tag"] if other != tag]
        chips.append((tag, address.url(tag=others), f"without tag {tag}"))
    return chips


@dataclass(frozen=True)
class Leader:
    """A card of the leaderboard with its newest version and its factuality, which may be of an older one.

    `copies`: names under which the same content was published again.
    """

    version: Version
    trust: Trust
    copies: Sequence[str] = ()

    @property
    def has_few_documents(self) -> bool:
        """Whether its factuality is the mean of so few documents that its place says little."""
        estimate = self.trust.estimate
        return estimate is None or estimate.count is None or estimate.count < MIN_LEADER_DOCUMENTS


@router.get("/leaderboard", dependencies=[EXPENSIVE])
def leaderboard(hub: HubDep, domain: str = "") -> Response:
    """Rank cards by the factuality that audits of this hub measured."""
    query = SearchQuery(facets={"domain": domain}, verified=True, sort="factuality", size=MAX_LEADERS)
    ranking = hub.search.find(query)
    counts = ranking.counts.facets["domain"]
    above = list_above(domain)
    below = [name for name in counts if name.rpartition("/")[0] == domain]
    leaders = []
    for row in make_rows(hub, ranking.repositories):
        if row.summary is not None and row.trust is not None and row.trust.audit is not None:
            leaders.append(Leader(row.summary, row.trust))
    # Cards that are measured only by evidence which repeats their own corpus: shown, but not ranked.
    overlapping = card_versions.list_overlapping(hub.database, domain, MAX_UNRANKED)
    trust = load_trust(hub, {version.repository_id: version for version in overlapping})
    unranked = [Leader(version, trust[version.repository_id]) for version in overlapping]
    return page(
        "leaderboard.html",
        domain=domain,
        above=above,
        below=below[:MAX_DOMAINS],
        counts=counts,
        leaders=merge_copies(hub, leaders),
        unranked=merge_copies(hub, unranked),
        least=MIN_LEADER_DOCUMENTS,
        here="leaderboard",
    )


def merge_copies(hub: HubServices, leaders: Sequence[Leader]) -> list[Leader]:
    """Return the leaders with the same content once, at the place of the first of them."""
    contents = card_versions.find_contents(hub.database, [leader.version.id for leader in leaders])
    by_content: dict[str, list[Leader]] = {}
    for leader in leaders:
        by_content.setdefault(contents[leader.version.id], []).append(leader)
    merged = []
    for first, *others in by_content.values():
        merged.append(replace(first, copies=[other.version.name for other in others]))
    return merged
