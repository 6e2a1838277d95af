"""Appeals against quarantine, for administrators of the hub: read, decide."""

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.forms.administration.row_number import row_number
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.forms.profile import SAVED
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import AdministratorDep
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

PATH = "/settings/hub/appeals"
ROWS = 50


@router.get(PATH)
def appeals_page(hub: HubDep, _: AdministratorDep, before: str = "", saved: str = "") -> Response:
    """Open appeals, and pages of decided ones, newest first."""
    return _page(hub, Form(), before, SAVED if saved else "")


@router.post(PATH)
def decide(hub: HubDep, admin: AdministratorDep, form: FormDep) -> Response:
    """Release the version, or keep it in quarantine."""
    number = row_number(form.text("number"), 0)
    field = f"note_{number}"
    with form.beside(field):
        answer = form.choice("answer", "release", "keep")
        note = form.long_text(field).strip()
        hub.registry.appeals.decide(number, "release" if answer == "release" else "keep", note, by=admin.name)
        return RedirectResponse(f"{PATH}?saved=1", 303)
    return _page(hub, form)


def _page(hub: SharedHub, form: Form, before: str = "", done: str = "") -> Response:
    waiting = hub.registry.appeals.list(undecided=True, limit=ROWS)
    form.keep_errors(f"note_{appeal.number}" for appeal in waiting)
    decided = hub.registry.appeals.list(
        undecided=False, limit=ROWS + 1, before=row_number(before) if before else None
    )
    return page(
        "hub_appeals.html",
        form.status,
        form=form,
        waiting=waiting,
        most=ROWS,
        decided=decided[:ROWS],
        threshold=hub.registry.quarantine.threshold,
        first=PATH if before else None,
        following=f"{PATH}?before={decided[ROWS - 1].number}" if len(decided) > ROWS else None,
        done=done,
    )
