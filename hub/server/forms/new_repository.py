"""A new repository."""

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts.identity import Identity
from kcard.hub.repositories.permissions import may_create, require_unbound
from kcard.hub.repositories.values import Type
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.endpoints.repos import create_repository
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.page.card_views import address
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

TYPES: tuple[tuple[Type, str], ...] = (("model", "Card or model"), ("dataset", "Dataset"))


@router.get("/new")
def new_page(member: MemberDep, owner: str = "") -> Response:
    """The form. `owner`: the namespace that is chosen at first."""
    return _page(member, Form({"owner": owner} if owner else {}))


@router.post("/new")
def create(hub: HubDep, member: MemberDep, form: FormDep) -> Response:
    """Create a repository, and go on to its upload."""
    type_: Type = "dataset" if form.text("type") == "dataset" else "model"
    with form.beside("owner"):
        require_unbound(member)
    with form.beside("name"):
        private = form.choice("visibility", "public", "private") == "private"
        full = f"{form.text('owner')}/{form.text('name')}"
        if not form.errors:
            made = create_repository(hub, member, type_, full, private=private)
            return RedirectResponse(address(made, "upload"), 303)
    return _page(member, form)


def _page(member: Identity, form: Form) -> Response:
    owners = [name for name in (member.name, *member.organisations) if may_create(member, name)]
    return page(
        "new_repository.html",
        form.status,
        form=form,
        owners=[(name, name) for name in owners],
        types=TYPES,
    )
