"""The queue of measurements, for administrators of the hub."""

from typing import get_args
from urllib.parse import urlencode

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.repositories.jobs import State
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.forms.administration.row_number import row_number
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import AdministratorDep
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

PATH = "/settings/hub/jobs"
ROWS = 50
STATES: tuple[State, ...] = get_args(State)


@router.get(PATH)
def jobs_page(
    hub: HubDep, _: AdministratorDep, state: str = "", before: str = "", saved: str = ""
) -> Response:
    """Jobs, newest first, in one state or all."""
    return _page(hub, Form(), state, before, "It will be measured again." if saved else "")


@router.post(PATH)
def retry(hub: HubDep, _: AdministratorDep, form: FormDep) -> Response:
    """Try a failed job again."""
    with form.beside(""):
        hub.registry.jobs.retry(row_number(form.text("number"), 0))
        return RedirectResponse(f"{PATH}?saved=1", 303)
    return _page(hub, form)


def _page(hub: SharedHub, form: Form, state: str = "", before: str = "", done: str = "") -> Response:
    wanted = next((each for each in STATES if each == state), None)
    found = hub.registry.jobs.list(wanted, ROWS + 1, row_number(before) if before else None)
    query = {"state": wanted} if wanted else {}
    following = {**query, "before": found[ROWS - 1].number} if len(found) > ROWS else None
    return page(
        "hub_jobs.html",
        form.status,
        form=form,
        jobs=found[:ROWS],
        state=wanted,
        states=STATES,
        measuring=hub.registry.jobs.measuring,
        first=f"{PATH}?{urlencode(query)}" if before else None,
        following=f"{PATH}?{urlencode(following)}" if following else None,
        done=done,
    )
