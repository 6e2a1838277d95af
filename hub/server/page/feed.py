"""The Atom feed of new versions of cards, and the icon of the hub."""

from functools import cache

from fastapi import APIRouter, Request
from starlette.responses import Response

from kcard.hub.repositories import version_figures
from kcard.hub.server.dependencies import HubDep, OptionsDep, base_url
from kcard.hub.server.limits import IN_TURN
from kcard.hub.server.page.render import TEMPLATES, rendered

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

ENTRIES = 30
DAY = "public, max-age=86400"


@router.get("/feed.atom", dependencies=[IN_TURN])
def feed(request: Request, hub: HubDep, options: OptionsDep) -> Response:
    """The versions that were published last in public repositories."""
    versions = version_figures.recent(hub.database, ENTRIES)
    text = rendered("feed.xml", versions=versions, url=base_url(request, options))
    return Response(text, media_type="application/atom+xml")


@router.get("/favicon.svg", dependencies=[IN_TURN])
@router.get("/favicon.ico", dependencies=[IN_TURN])
def icon() -> Response:
    """Browsers that take no SVG ask for favicon.ico in vain."""
    return Response(_icon(), media_type="image/svg+xml", headers={"Cache-Control": DAY})


@cache
def _icon() -> str:
    return (TEMPLATES / "favicon.svg").read_text(encoding="utf-8")
