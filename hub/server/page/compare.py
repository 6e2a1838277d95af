"""The pages that compare cards: two side by side, and the leaderboard of verified figures."""

from fastapi import APIRouter
from starlette.responses import Response

from kcard.hub.repositories import version_figures
from kcard.hub.repositories.search import SearchQuery
from kcard.hub.server.dependencies import HubDep, OptionalIdentity
from kcard.hub.server.limits import IN_TURN
from kcard.hub.server.page.comparison import compared, figures, same_questions, versions
from kcard.hub.server.page.render import page

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

LEADERS = 100


@router.get("/compare", dependencies=[IN_TURN])
def compare(hub: HubDep, identity: OptionalIdentity, a: str = "", b: str = "") -> Response:
    """Two versions; a form without them."""
    sides = [compared(hub, reference, identity) if reference.strip() else None for reference in (a, b)]
    left, right = sides
    both = left is not None and right is not None
    return page(
        "compare.html",
        a=a,
        b=b,
        sides=sides,
        suggested=versions(hub, left) if left is not None else [],
        figures=figures(left, right) if left is not None and right is not None else [],
        questions=same_questions(left, right) if left is not None and right is not None else [],
        both=both,
        here="compare",
    )


@router.get("/leaderboard", dependencies=[IN_TURN])
def leaderboard(hub: HubDep, domain: str = "") -> Response:
    """Cards by the factuality that audits of this hub measured."""
    found = hub.search.find(
        SearchQuery(facets={"domain": domain}, verified=True, sort="factuality", size=LEADERS)
    )
    counts = found.counts.facets["domain"]
    parts = domain.split("/") if domain else []
    below = [name for name in counts if name.rpartition("/")[0] == domain and name.count("/") == len(parts)]
    return page(
        "leaderboard.html",
        domain=domain,
        above=["/".join(parts[: place + 1]) for place in range(len(parts))],
        below=below[:30],
        counts=counts,
        threshold=hub.registry.quarantine.threshold,
        floor=hub.registry.quarantine.coverage,
        leaders=version_figures.verified(hub.database, found.repositories),
        here="leaderboard",
    )
