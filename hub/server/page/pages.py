"""The page of a repository. It runs only the hub's own script and loads nothing from elsewhere.

Pages show what the client may read.
"""

from fastapi import APIRouter, Request
from starlette.responses import Response

from kcard.hub.repositories.audits import measurable
from kcard.hub.server.dependencies import HubDep, OptionalIdentity, OptionsDep, base_url, web_type
from kcard.hub.server.limits import IN_TURN
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.page.card_views import CardView, card
from kcard.hub.server.page.charts import History, histogram, history
from kcard.hub.server.page.exam_views import exam
from kcard.hub.server.page.render import page
from kcard.hub.server.page.rights import Rights
from kcard.hub.server.page.uses import uses
from kcard.hub.server.reading.recent import RecentDep
from kcard.hub.server.visitor import visitor
from kcard.hub.shared import SharedHub
from kcard.manifest import MANIFEST

__all__ = ["page", "router"]

router = APIRouter(include_in_schema=False)

MOST_TAGS = 24
# Tags that the page shows as properties.
SHOWN_ELSEWHERE = ("kcard", "domain:", "base_model:", "license:", "dataset:corpus-")


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


@router.get("/{namespace}/{name}/tree/{revision}", dependencies=[IN_TURN])
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
    view = card(hub, recent, web_type(request), f"{namespace}/{name}", revision, identity)
    examined = view.exam
    published = view.row.mark is not None
    paths = [file.path for file in view.files]
    rights = Rights.of(hub, identity, view.row.repository)
    return page(
        "card.html",
        view=view,
        tags=[tag for tag in view.row.repository.tags if not tag.startswith(SHOWN_ELSEWHERE)][:MOST_TAGS],
        here="datasets" if view.row.repository.type == "dataset" else "cards",
        history=_history(hub, view),
        histogram=None if examined is None else histogram(examined.scores),
        uses=uses(
            view.row.repository,
            view.manifest,
            url=base_url(request, options),
            revision=revision,
            path=MANIFEST if MANIFEST in paths else next(iter(paths), ""),
            published=published,
            question=next(iter(view.suggestions), ""),
        ),
        rights=rights,
        asks=_asked(view) if visitor.get().asks else "",
    )


def _asked(view: CardView) -> str:
    """The reference by which the version of the page is asked; "" if it can't be."""
    if view.shown is None or view.manifest is None or not measurable(view.manifest):
        return ""
    return f"{view.row.repository.name}@v{view.shown.number}"


def _history(hub: SharedHub, view: CardView) -> History | None:
    """Factuality and recall over the versions."""
    versions = []
    for version in view.versions:
        found = exam(hub.blobs, version.exam) if version.exam and view.released else None
        recall = None if found is None or found.recall is None else found.recall.mean
        verified = None if version.verified is None else version.verified.factuality
        versions.append(
            (version.number, {"declared": version.declared, "recall": recall, "verified": verified})
        )
    return history(versions)
