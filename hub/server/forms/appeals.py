"""Appeals against the quarantine of a card, by administrators of its repository."""

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts.identity import Identity
from kcard.hub.repositories.permissions import require_administer
from kcard.hub.repositories.values import Repository
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.endpoints.measurements import make_appeal
from kcard.hub.server.forms.administration.row_number import row_number
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.page.appeal_views import appeal_view
from kcard.hub.server.page.card_views import address, row
from kcard.hub.server.page.render import page
from kcard.hub.server.page.rights import Rights
from kcard.hub.server.visitor import MemberDep, MemberRepository
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

APPEAL = "/{namespace}/{name}/appeal"


@router.get(APPEAL)
def appeal_page(hub: HubDep, member: MemberDep, repository: MemberRepository) -> Response:
    """The form, or the state of the appeal."""
    require_administer(member, repository)
    return _page(hub, member, repository, Form())


@router.post(APPEAL)
def appeal(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Appeal against the quarantine of the version that the form was shown for, once for each audit."""
    require_administer(member, repository)
    with form.beside("note"):
        version = row_number(form.text("version"))
        make_appeal(hub, repository, version, form.long_text("note"), member)
        return RedirectResponse(address(repository), 303)
    return _page(hub, member, repository, form)


def _page(hub: SharedHub, member: Identity, repository: Repository, form: Form) -> Response:
    mark, rights = row(hub, repository).mark, Rights.of(hub, member, repository)
    view = appeal_view(hub, mark, rights)
    form.keep_errors(["note"] if view is not None and view.allowed else [])
    return page(
        "appeal.html",
        form.status,
        form=form,
        repository=repository,
        mark=mark,
        appealed=view,
    )
