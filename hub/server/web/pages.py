"""Home page, feed, leaderboard, and the page of a repository."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from kcard.hub import versions as card_versions
from kcard.hub.accounts import Identity
from kcard.hub.db.models import Repository, RepositoryType, Version
from kcard.hub.errors import Invalid
from kcard.hub.search import FACTUALITY, ORDERS, Counts, SearchQuery
from kcard.hub.search_index import FACETS
from kcard.hub.server.caches import CachesDep
from kcard.hub.server.dependencies import (
    HubDep,
    OptionalIdentity,
    OptionsDep,
    Segment,
    base_url,
    web_type,
)
from kcard.hub.server.limits import EXPENSIVE
from kcard.hub.server.web.cards import RepositoryRow, list_uses, load_card, load_exam, make_rows, search_rows
from kcard.hub.server.web.charts import make_histogram, make_history
from kcard.hub.server.web.measurements import (
    Trust,
    declared_factuality,
    find_recall,
    load_trust,
    measured_estimates,
)
from kcard.hub.server.web.render import page, read_template, render_template
from kcard.hub.services import HubServices
from kcard.hub.values import format_score
from kcard.manifest import MANIFEST

# The Atom feed of new versions of cards, and the icon of the hub.

feed_router = APIRouter(include_in_schema=False)

ENTRIES = 30
DAY = "public, max-age=86400"


@feed_router.get("/feed.atom", dependencies=[EXPENSIVE])
def feed(request: Request, hub: HubDep, options: OptionsDep) -> Response:
    """Show the versions that were published last in public repositories."""
    versions = card_versions.list_recent(hub.database, ENTRIES)
    text = render_template("feed.xml", versions=versions, url=base_url(request, options))
    return Response(text, media_type="application/atom+xml")


@feed_router.get("/favicon.svg", dependencies=[EXPENSIVE])
@feed_router.get("/favicon.ico", dependencies=[EXPENSIVE])
def icon() -> Response:
    """Return the SVG icon, even to browsers that support only ICO."""
    return Response(read_template("favicon.svg"), media_type="image/svg+xml", headers={"Cache-Control": DAY})


home_router = APIRouter(include_in_schema=False)

ROWS = 25
MOST_VALUES = 10  # of a facet
# For a search that finds nothing: suggestions, words that are tried one by one, and names that are compared.
NEARBY, MOST_TRIED, SHORTEST, MOST_NAMES = 5, 4, 3, 200
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
class FacetChoice:
    """A value of a facet: its label, count and URL, and whether it is chosen; `depth`: of a domain."""

    label: str
    count: int
    url: str
    chosen: bool
    depth: int = 0


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
    tag: Tags = [],  # noqa: B006 (FastAPI copies it)
    sort: str = "",
    page: str = "",
) -> dict[str, Any]:
    return dict(locals())


# The query parameters of a list.
Parameters = Annotated[dict[str, Any], Depends(read_parameters)]


@home_router.get("/", dependencies=[EXPENSIVE])
@home_router.get("/datasets", dependencies=[EXPENSIVE])
def home(
    request: Request, hub: HubDep, identity: OptionalIdentity, options: OptionsDep, parameters: Parameters
) -> Response:
    """Show the list of cards and models, or of datasets."""
    type_: RepositoryType = "model" if request.scope["path"] == "/" else "dataset"
    query = _make_query(type_, parameters)
    rows, matches = search_rows(hub, query, identity)
    path = request.scope["path"]
    nearby, similar = ([], False) if rows else suggest_rows(hub, query, identity)
    return page(
        "home.html",
        rows=rows,
        nearby=nearby,
        similar=similar,
        matches=matches,
        query=query,
        parameters=parameters,
        here="cards" if type_ == "model" else "datasets",
        facets=_list_facets(path, parameters, matches.counts),
        chips=_list_chips(path, parameters),
        sorts=[(name, title) for name, title in SORTS.items() if name != "relevance" or query.words],
        url=lambda **changed: _list_url(path, parameters, **changed),
        path=path,
        hub_url=base_url(request, options),
        threshold=hub.registry.quarantine.threshold,
    )


def suggest_rows(
    hub: HubServices, query: SearchQuery, identity: Identity | None
) -> tuple[list[RepositoryRow], bool]:
    """Return repositories for a search without a result, and whether they resemble it: else they are the most
    downloaded.

    They match all words without the filters, one of the words or its beginning, or have a similar name.
    """
    similar: dict[int, Repository] = {}
    words = query.words[:MOST_TRIED]
    shorter = [word[:end] for word in words for end in (-1, -2, -3) if len(word[:end]) >= SHORTEST]
    for text in dict.fromkeys([" ".join(words), *words, *shorter]):
        if text and len(similar) < NEARBY:
            tried = SearchQuery(type=query.type, text=text, size=NEARBY)
            similar |= {each.id: each for each in hub.search.find(tried, identity).repositories}
    popular = hub.search.find(
        SearchQuery(type=query.type, sort="downloads", size=MOST_NAMES), identity
    ).repositories
    by_name = {each.name.partition("/")[2].lower(): each for each in popular}
    for word in words if not similar else ():
        similar |= {by_name[name].id: by_name[name] for name in get_close_matches(word, by_name, NEARBY)}
    chosen = [*similar.values()] or popular
    return make_rows(hub, chosen[:NEARBY]), bool(similar)


def _make_query(type_: RepositoryType, parameters: Mapping[str, Any]) -> SearchQuery:
    sort = parameters["sort"] or "relevance"
    if sort not in ORDERS:
        raise Invalid(f"unknown sort {sort[:50]!r}: use {', '.join(ORDERS)}")
    return SearchQuery(
        type=type_,
        text=parameters["q"],
        facets={facet: parameters[facet] for facet in FACETS},
        author=parameters["author"],
        tags=parameters["tag"],
        verified=bool(parameters["verified"]),
        factuality=_parse_number(parameters["factuality"], "factuality", float),
        sort=sort,
        page=_parse_number(parameters["page"] or "1", "page", int),
        size=ROWS,
    )


def _parse_number(text: str, name: str, kind: type) -> Any:
    try:
        return kind(text) if text else None
    except ValueError:
        raise Invalid(f"invalid {name} {text[:50]!r}: use a number") from None


def _list_url(path: str, parameters: Mapping[str, Any], **changed: Any) -> str:
    """Return the URL of the list with changed parameters, at its first page by default."""
    merged = {**parameters, "page": "", **changed}
    query = urlencode({name: value for name, value in merged.items() if value}, doseq=True)
    return path + (f"?{query}" if query else "")


def _list_facets(
    path: str, parameters: Mapping[str, Any], counts: Counts
) -> list[tuple[str, list[FacetChoice]]]:
    """Return the title and the choices of each facet that has any."""
    facets = [("Domain", _list_domains(path, parameters, counts.facets["domain"]))]
    chosen = parameters["verified"] != ""
    verified = FacetChoice(
        "Measured by this hub",
        counts.verified,
        _list_url(path, parameters, verified="" if chosen else "1"),
        chosen,
    )
    least = [
        FacetChoice(
            f"measured, at least {format_score(value).rstrip('0')}",
            count,
            _list_url(
                path, parameters, factuality="" if parameters["factuality"] == f"{value}" else f"{value}"
            ),
            parameters["factuality"] == f"{value}",
        )
        for value, count in ((value, counts.factuality[value]) for value in FACTUALITY)
    ]
    facets.append(("Factuality", [each for each in (verified, *least) if each.count or each.chosen]))
    for facet in ("kind", "base", "language", "licence"):
        facets.append((TITLES[facet], _list_choices(path, parameters, facet, counts.facets[facet])))
    return [(title, choices) for title, choices in facets if choices]


def _list_choices(
    path: str, parameters: Mapping[str, Any], facet: str, counts: Mapping[str, int]
) -> list[FacetChoice]:
    shown = dict([*counts.items()][:MOST_VALUES])
    if parameters[facet]:
        shown.setdefault(parameters[facet], counts.get(parameters[facet], 0))
    return [
        FacetChoice(
            value,
            count,
            _list_url(path, parameters, **{facet: "" if parameters[facet] == value else value}),
            parameters[facet] == value,
        )
        for value, count in shown.items()
    ]


def _list_domains(path: str, parameters: Mapping[str, Any], counts: Mapping[str, int]) -> list[FacetChoice]:
    """Return the chosen domain with those above and directly below it; if none is chosen, the top-level ones."""
    chosen = parameters["domain"]
    parts = chosen.split("/") if chosen else []
    above = ["/".join(parts[: place + 1]) for place in range(len(parts))]
    start = f"{chosen}/" if chosen else ""
    below = (name for name in counts if name.startswith(start) and "/" not in name[len(start) :])
    return [
        FacetChoice(
            domain.rpartition("/")[2],
            counts.get(domain, 0),
            _list_url(path, parameters, domain=domain if domain != chosen else domain.rpartition("/")[0]),
            domain == chosen,
            domain.count("/"),
        )
        for domain in (*above, *islice(below, MOST_VALUES))
    ]


def _list_chips(path: str, parameters: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the active filters of the list: label, URL without the filter, and what removing it does."""
    chips = [
        (parameters[name], _list_url(path, parameters, **{name: ""}), f"without {title} {parameters[name]}")
        for name, title in TITLES.items()
        if parameters[name]
    ]
    if parameters["verified"]:
        chips.append(("measured", _list_url(path, parameters, verified=""), "not only measured"))
    if parameters["factuality"]:
        least = parameters["factuality"]
        chips.append(
            (f"factuality ≥ {least}", _list_url(path, parameters, factuality=""), "with any factuality")
        )
    if parameters["author"]:
        chips.append(
            (
                f"by {parameters['author']}",
                _list_url(path, parameters, author=""),
                f"not only by {parameters['author']}",
            )
        )
    for tag in parameters["tag"]:
        others = [other for other in parameters["tag"] if other != tag]
        chips.append((tag, _list_url(path, parameters, tag=others), f"without tag {tag}"))
    return chips


# The leaderboard: cards by the factuality that audits of this hub measured.

leaderboard_router = APIRouter(include_in_schema=False)

LEADERS, MOST_UNRANKED = 100, 20
MIN_LEADER_DOCUMENTS = 30


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
        count = None if self.trust.estimate is None else self.trust.estimate.count
        return count is None or count < MIN_LEADER_DOCUMENTS


def merge_copies(hub: HubServices, leaders: Sequence[Leader]) -> list[Leader]:
    """Return the leaders with the same content once, at the place of the first of them."""
    contents = card_versions.find_contents(hub.database, [leader.version.id for leader in leaders])
    by_content: dict[str, list[Leader]] = {}
    for leader in leaders:
        by_content.setdefault(contents[leader.version.id], []).append(leader)
    return [
        replace(first, copies=[copy.version.name for copy in others])
        for first, *others in by_content.values()
    ]


@leaderboard_router.get("/leaderboard", dependencies=[EXPENSIVE])
def leaderboard(hub: HubDep, domain: str = "") -> Response:
    """Rank cards by the factuality that audits of this hub measured."""
    ranking = hub.search.find(
        SearchQuery(facets={"domain": domain}, verified=True, sort="factuality", size=LEADERS)
    )
    counts = ranking.counts.facets["domain"]
    parts = domain.split("/") if domain else []
    below = [name for name in counts if name.rpartition("/")[0] == domain and name.count("/") == len(parts)]
    rows: list[RepositoryRow] = make_rows(hub, ranking.repositories)
    leaders = [
        Leader(row.summary, row.trust)
        for row in rows
        if row.summary is not None and row.trust is not None and row.trust.audit is not None
    ]
    # Cards that are measured only by evidence which repeats their own corpus: shown, but not ranked.
    overlapping = card_versions.list_overlapping(hub.database, domain, MOST_UNRANKED)
    trust = load_trust(hub, {version.repository_id: version for version in overlapping})
    return page(
        "leaderboard.html",
        domain=domain,
        above=["/".join(parts[: place + 1]) for place in range(len(parts))],
        below=below[:30],
        counts=counts,
        leaders=merge_copies(hub, leaders),
        unranked=merge_copies(
            hub, [Leader(version, trust[version.repository_id]) for version in overlapping]
        ),
        least=MIN_LEADER_DOCUMENTS,
        here="leaderboard",
    )


# The page of a repository, with what the client may read. It runs only the hub's own script, and loads nothing from
# other hosts.

router = APIRouter(include_in_schema=False)

MOST_TAGS = 24
# Tags that the page shows as properties.
SHOWN_ELSEWHERE = ("kcard", "domain:", "base_model:", "license:", "dataset:corpus-")


@router.get("/{namespace}/{name}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}", dependencies=[EXPENSIVE])
def repository(
    request: Request,
    hub: HubDep,
    caches: CachesDep,
    identity: OptionalIdentity,
    options: OptionsDep,
    namespace: Segment,
    name: Segment,
) -> Response:
    """Show a card, model or dataset on branch main."""
    return repository_at(request, hub, caches, identity, options, namespace, name, "main")


@router.get("/{namespace}/{name}/tree/{revision}", dependencies=[EXPENSIVE])
@router.get("/datasets/{namespace}/{name}/tree/{revision}", dependencies=[EXPENSIVE])
def repository_at(
    request: Request,
    hub: HubDep,
    caches: CachesDep,
    identity: OptionalIdentity,
    options: OptionsDep,
    namespace: Segment,
    name: Segment,
    revision: Segment,
) -> Response:
    """Show a card, model or dataset at a revision."""
    view = load_card(hub, caches, web_type(request), f"{namespace}/{name}", revision, identity)
    examined = view.exam
    published = view.row.summary is not None
    paths = [file.path for file in view.files]
    # The state of the visitor's request for access to a gated repository.
    access = None
    if identity is not None and view.row.repository.gated != "no":
        access = hub.repositories.access_state(view.row.repository, identity.account_id)
    # Factuality and recall over the versions.
    measured = measured_estimates(hub, view.versions)
    values = []
    for version in view.versions:
        own = load_exam(hub.blobs, version.exam) if version.exam and view.released else None
        declared = declared_factuality(hub.blobs, version, version.exam)
        recall = None if own is None else own.recall
        values.append(
            (
                version.number,
                {"declared": declared, "recall": recall, "measured": measured.get(version.number)},
            )
        )
    # On main, a version that is not measured yet shows the figure of the one before it.
    shown = view.shown or (view.versions[-1] if view.versions else None)
    trust = None
    if shown is not None:
        trust = load_trust(hub, {shown.repository_id: shown}, earlier=revision == "main")[shown.repository_id]
    return page(
        "card.html",
        view=view,
        tags=[tag for tag in view.row.repository.tags if not tag.startswith(SHOWN_ELSEWHERE)][:MOST_TAGS],
        here="datasets" if view.row.repository.type == "dataset" else "cards",
        history=make_history(values),
        histogram=None if examined is None else make_histogram(examined.scores),
        trust=trust,
        recall=None if shown is None else find_recall(hub, shown),
        uses=list_uses(
            view.row.repository,
            view.manifest,
            url=base_url(request, options),
            revision=revision,
            path=MANIFEST if MANIFEST in paths else next(iter(paths), ""),
            published=published,
            question=next(iter(view.suggestions), ""),
        ),
        access=access,
    )
