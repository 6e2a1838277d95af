"""Requests for access to a gated repository: ask with a note, grant, reject."""

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts.identity import Identity
from kcard.hub.repositories.access import LONGEST_NOTE
from kcard.hub.repositories.permissions import may_administer, require_administer
from kcard.hub.repositories.values import Repository
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.endpoints.access import decide, find_user, require_gated
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.page.card_views import address
from kcard.hub.server.page.render import page
from kcard.hub.server.page.rights import Rights
from kcard.hub.server.visitor import MemberDep, MemberRepository
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

ACCESS = "/{namespace}/{name}/access"


@router.get(ACCESS)
@router.get("/datasets" + ACCESS)
def access_page(hub: HubDep, member: MemberDep, repository: MemberRepository) -> Response:
    """For administrators of the repository the requests, for others the state of their own."""
    require_gated(repository)
    return _page(hub, member, repository, Form())


@router.post(ACCESS)
@router.post("/datasets" + ACCESS)
def ask(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Ask for access with a note. Asking again does not change it."""
    require_gated(repository)
    with form.beside("note"):
        hub.repositories.request_access(repository, member.account_id, form.long_text("note").strip())
        return RedirectResponse(address(repository), 303)
    return _page(hub, member, repository, form)


@router.post(ACCESS + "/answer")
@router.post("/datasets" + ACCESS + "/answer")
def answer(hub: HubDep, member: MemberDep, repository: MemberRepository, form: FormDep) -> Response:
    """Grant or reject a request, or grant access without one."""
    require_administer(member, repository)
    require_gated(repository)
    with form.beside("user"):
        state = form.choice("state", "granted", "rejected")
        user = find_user(hub, form.text("user"))
        decide(hub, repository, user, "granted" if state == "granted" else "rejected", member)
        return RedirectResponse(address(repository, "access"), 303)
    return _page(hub, member, repository, form)


def _page(hub: SharedHub, member: Identity, repository: Repository, form: Form) -> Response:
    administers = may_administer(member, repository)
    return page(
        "access.html",
        form.status,
        form=form,
        repository=repository,
        type=repository.type,
        rights=Rights.of(hub, member, repository),
        requests=hub.repositories.requests(repository) if administers else [],
        longest=LONGEST_NOTE,
    )
