"""Settings of a repository: visibility, gating, name, deletion."""

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.refusals import Invalid
from kcard.hub.repositories.permissions import require_administer
from kcard.hub.repositories.values import Repository
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.endpoints.repos import change_settings, delete_repository, move_repository
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.forms.profile import SAVED
from kcard.hub.server.page.card_views import address
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep, MemberRepository
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

SETTINGS = "/{namespace}/{name}/settings"
GATES = (
    ("no", "no: everyone who sees it gets the files"),
    ("auto", "automatic: who asks gets the files, and you see who asked"),
    ("manual", "manual: you answer each request"),
)


@router.get(SETTINGS)
@router.get("/datasets" + SETTINGS)
def settings_page(hub: HubDep, member: MemberDep, repository: MemberRepository, saved: str = "") -> Response:
    """The forms, as stored."""
    require_administer(member, repository)
    return _page(hub, repository, Form(), SAVED if saved else "")


@router.post(SETTINGS)
@router.post("/datasets" + SETTINGS)
def save(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Change visibility and gating."""
    require_administer(member, repository)
    with form.beside("visibility"):
        private = form.choice("visibility", "public", "private") == "private"
        gated = form.choice("gated", *(value for value, _ in GATES))
        gate = next(gate for gate in ("no", "auto", "manual") if gate == gated)
        change_settings(hub, member, repository, private=private, gated=gate)
        return RedirectResponse(f"{address(repository, 'settings')}?saved=1", 303)
    return _page(hub, repository, form)


@router.post(SETTINGS + "/move")
@router.post("/datasets" + SETTINGS + "/move")
def move(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Move or rename it."""
    require_administer(member, repository)
    with form.beside("to"):
        moved = move_repository(hub, member, repository, form.text("to"))
        return RedirectResponse(f"{address(moved, 'settings')}?saved=1", 303)
    return _page(hub, repository, form)


@router.post(SETTINGS + "/delete")
@router.post("/datasets" + SETTINGS + "/delete")
def delete(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Delete it, if its full name was typed."""
    require_administer(member, repository)
    with form.beside("confirm"):
        if form.text("confirm") != repository.name:
            raise Invalid(f"type the full name, {repository.name}, to delete this repository")
        delete_repository(hub, member, repository)
        return RedirectResponse(f"/{repository.namespace}", 303)
    return _page(hub, repository, form)


def _page(hub: SharedHub, repository: Repository, form: Form, done: str = "") -> Response:
    return page(
        "repository_settings.html",
        form.status,
        form=form,
        repository=repository,
        type=repository.type,
        gates=GATES,
        versions=len(hub.publications.of(repository)),
        done=done,
    )
