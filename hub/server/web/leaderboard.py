"""The leaderboard: cards by the factuality that audits of this hub measured."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter
from starlette.responses import Response

from kcard.hub import versions as card_versions
from kcard.hub.db.models import Version
from kcard.hub.search import SearchQuery
from kcard.hub.server.concurrency import EXPENSIVE
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.web.cards import make_rows
from kcard.hub.server.web.measurements import Trust, load_trust
from kcard.hub.server.web.render import page
from kcard.hub.services import HubServices

router = APIRouter(include_in_schema=False)

MAX_LEADERS, MAX_UNRANKED, MAX_DOMAINS = 100, 20, 30
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


@router.get("/leaderboard", dependencies=[EXPENSIVE])
def leaderboard(hub: HubDep, domain: str = "") -> Response:
    """Rank cards by the factuality that audits of this hub measured."""
    query = SearchQuery(facets={"domain": domain}, verified=True, sort="factuality", size=MAX_LEADERS)
    ranking = hub.search.find(query)
    counts = ranking.counts.facets["domain"]
    parts = domain.split("/") if domain else []
    below = [name for name in counts if name.rpartition("/")[0] == domain and name.count("/") == len(parts)]
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
        above=["/".join(parts[: place + 1]) for place in range(len(parts))],
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
