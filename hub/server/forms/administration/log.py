"""The event log, for administrators of the hub."""

from typing import get_args
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import Response

from kcard.hub.accounts.events import Action
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.forms.administration.row_number import row_number
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import AdministratorDep

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

PATH = "/settings/hub/log"
ROWS = 50


@router.get(PATH)
def log_page(
    hub: HubDep,
    _: AdministratorDep,
    action: str = "",
    actor: str = "",
    target: str = "",
    before: str = "",
) -> Response:
    """Events, latest first, by action, actor or target."""
    asked = {"action": action, "actor": actor, "target": target}
    asked = {key: value.replace("\0", "").strip() for key, value in asked.items()}
    found = hub.events.list(ROWS + 1, row_number(before), **{k: v or None for k, v in asked.items()})
    following = found[ROWS - 1].number if len(found) > ROWS else None
    query = {key: value for key, value in asked.items() if value}
    return page(
        "hub_log.html",
        events=found[:ROWS],
        asked=asked,
        actions=get_args(Action),
        first=f"{PATH}?{urlencode(query)}" if before else None,
        following=f"{PATH}?{urlencode({**query, 'before': following})}" if following else None,
    )
