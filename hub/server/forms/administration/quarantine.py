"""The quarantine, for administrators of the hub: the threshold, and the cards below it."""

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.refusals import Invalid
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.forms.profile import SAVED
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import AdministratorDep
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

PATH = "/settings/hub/quarantine"
MOST = 200


@router.get(PATH)
def quarantine_page(hub: HubDep, _: AdministratorDep, saved: str = "") -> Response:
    """The threshold and the quarantined cards."""
    return _page(hub, Form(), SAVED if saved else "")


@router.post(PATH)
def save(hub: HubDep, admin: AdministratorDep, form: FormDep) -> Response:
    """Set threshold and floor of coverage; an empty threshold turns the quarantine off, an empty floor stays."""
    with form.beside("coverage"):
        if (floor := _share("coverage", form.text("coverage"))) is not None:
            hub.registry.quarantine.set_coverage(floor, by=admin.name)
        with form.beside("threshold"):
            hub.registry.quarantine.set(_share("threshold", form.text("threshold")), by=admin.name)
            return RedirectResponse(f"{PATH}?saved=1", 303)
    return _page(hub, form)


def _share(name: str, text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise Invalid(f"invalid {name} {text[:40]!r}: use a number from 0 to 1, such as 0.5") from None


def _page(hub: SharedHub, form: Form, done: str = "") -> Response:
    return page(
        "hub_quarantine.html",
        form.status,
        form=form,
        threshold=hub.registry.quarantine.threshold,
        coverage=hub.registry.quarantine.coverage,
        marks=hub.publications.quarantined(MOST),
        most=MOST,
        done=done,
    )
