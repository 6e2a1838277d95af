"""One's own profile, and that of an organisation."""

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts.accounts import Account, check_text
from kcard.hub.repositories.permissions import require_administer_namespace
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep
from kcard.hub.shared import SharedHub

__all__ = ["SAVED", "router", "update_profile"]

router = APIRouter(include_in_schema=False)

SAVED = "Saved."


@router.get("/settings")
def profile_page(hub: HubDep, member: MemberDep, saved: str = "") -> Response:
    """The form, as stored."""
    return _page(hub.accounts.get(member.name), Form(), SAVED if saved else "")


@router.post("/settings")
def save(hub: HubDep, member: MemberDep, form: FormDep) -> Response:
    """Change one's own name, address and description."""
    require_administer_namespace(member, member.name)
    account = hub.accounts.get(member.name)
    update_profile(hub, form, account, member.name)
    return _page(account, form) if form.errors else RedirectResponse("/settings?saved=1", 303)


def update_profile(hub: SharedHub, form: Form, account: Account, by: str) -> None:
    """Change the texts of an account that the form has, all or none; errors stay beside their fields."""
    given = {name: form.long_text(name).strip() for name in ("fullname", "email", "description")}
    given = {name: text for name, text in given.items() if name in form.values}
    for name, text in given.items():
        with form.beside(name):
            check_text(name, text)
    changed = {name: text for name, text in given.items() if text != getattr(account, name)}
    if changed and not form.errors:
        hub.accounts.update(account.name, by=by, **changed)  # type: ignore[arg-type]  # texts only


def _page(account: Account, form: Form, done: str = "") -> Response:
    return page("profile.html", form.status, form=form, account=account, done=done)
