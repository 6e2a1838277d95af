"""Organisations: one's own, new ones, members and roles, leaving."""

from typing import get_args

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts.accounts import Account
from kcard.hub.accounts.identity import Identity, Role
from kcard.hub.accounts.names import folded
from kcard.hub.refusals import Forbidden, NotThere
from kcard.hub.repositories.permissions import (
    is_administrator,
    may_administer_namespace,
    require_administer_namespace,
)
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.forms.profile import SAVED, update_profile
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

ROLES: tuple[Role, ...] = get_args(Role)
OWN = "/settings/organizations"
ONE = "/organizations/{organisation}"
MOST = 10  # that a user may administer, since each has a quota of its own


@router.get(OWN)
def own(member: MemberDep) -> Response:
    """One's own organisations, and the form for a new one."""
    return page("organisations.html", form=Form(), organisations=member.organisations)


@router.post(OWN)
def create(hub: HubDep, member: MemberDep, form: FormDep) -> Response:
    """Create an organisation; its creator administers it."""
    with form.beside("name"):
        require_administer_namespace(member, member.name)
        if not is_administrator(member) and hub.accounts.administered(member.account_id) >= MOST:
            raise Forbidden(
                f"you administer {MOST} organisations already: leave one, or ask an administrator of this hub"
            )
        made = hub.accounts.add_organisation(
            form.text("name"), owner=member.name, fullname=form.text("fullname"), by=member.name
        )
        return RedirectResponse(f"/organizations/{made.name}", 303)
    return page("organisations.html", form.status, form=form, organisations=member.organisations)


@router.get(ONE)
def organisation_page(hub: HubDep, member: MemberDep, organisation: Segment, saved: str = "") -> Response:
    """The members, and for administrators the forms that change them."""
    account = _organisation(hub, organisation)
    return _page(hub, account, member, Form(), SAVED if saved else "")


@router.post(ONE)
def save(hub: HubDep, member: MemberDep, form: FormDep, organisation: Segment) -> Response:
    """Change the full name and the description."""
    account = _organisation(hub, organisation)
    require_administer_namespace(member, account.name)
    update_profile(hub, form, account, member.name)
    return _page(hub, account, member, form) if form.errors else _done(account)


@router.post(ONE + "/members")
def set_member(hub: HubDep, member: MemberDep, form: FormDep, organisation: Segment) -> Response:
    """Add a user, change a role, or remove a user."""
    account = _organisation(hub, organisation)
    require_administer_namespace(member, account.name)
    with form.beside("user"):
        wanted = form.choice("role", *ROLES, "none")
        role = next((role for role in ROLES if role == wanted), None)
        hub.accounts.set_member(account.name, form.text("user"), role, by=member.name)
        return _done(account)
    return _page(hub, account, member, form)


@router.post(ONE + "/leave")
def leave(hub: HubDep, member: MemberDep, form: FormDep, organisation: Segment) -> Response:
    """Leave an organisation. Its last administrator can't."""
    account = _organisation(hub, organisation)
    require_administer_namespace(member, member.name)
    with form.beside("leave"):
        hub.accounts.set_member(account.name, member.name, None, by=member.name)
        return RedirectResponse(OWN, 303)
    return _page(hub, account, member, form)


def _organisation(hub: SharedHub, name: str) -> Account:
    account = hub.accounts.get(name)
    if account.kind != "organisation":
        raise NotThere("account", f"{account.name} is not an organisation")
    return account


def _done(account: Account) -> Response:
    return RedirectResponse(f"/organizations/{account.name}?saved=1", 303)


def _page(hub: SharedHub, account: Account, member: Identity, form: Form, done: str = "") -> Response:
    return page(
        "organisation.html",
        form.status,
        form=form,
        account=account,
        members=hub.accounts.members(account.name),
        roles=ROLES,
        administers=may_administer_namespace(member, account.name),
        belongs=any(folded(name) == folded(account.name) for name in member.organisations),
        done=done,
    )
