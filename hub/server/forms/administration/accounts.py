"""Accounts, for administrators of the hub: list, add, change, disable, tokens."""

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts.accounts import Account
from kcard.hub.server.dependencies import HubDep
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.forms.profile import SAVED, update_profile
from kcard.hub.server.middleware.raw_path import Segment
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import AdministratorDep
from kcard.hub.shared import SharedHub
from kcard.sizes import parse_size, shown_size

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

PATH = "/settings/hub/accounts"
ONE = PATH + "/{name}"
ROWS = 50


@router.get(PATH)
def accounts_page(hub: HubDep, _: AdministratorDep, q: str = "", after: str = "") -> Response:
    """A page of the accounts whose name starts with `q`, and the form for a new user."""
    return _list(hub, Form(), q.replace("\0", ""), after.replace("\0", ""))


@router.post(PATH)
def add(hub: HubDep, admin: AdministratorDep, form: FormDep) -> Response:
    """Add a user, and show a token for them, only this once."""
    with form.beside("name"):
        made = hub.accounts.add_user(
            form.text("name"),
            fullname=form.text("fullname"),
            email=form.text("email"),
            admin=form.checked("admin"),
            by=admin.name,
        )
        token = hub.tokens.create(made.name, scope="admin" if made.admin else "write", by=admin.name)
        return _one(hub, made, Form(), token=token, done=f"{made.name} was added.")
    return _list(hub, form)


@router.get(ONE)
def account_page(hub: HubDep, _: AdministratorDep, name: Segment, saved: str = "") -> Response:
    """An account with the forms that change it."""
    return _one(hub, hub.accounts.get(name), Form(), done=SAVED if saved else "")


@router.post(ONE)
def save(hub: HubDep, admin: AdministratorDep, form: FormDep, name: Segment) -> Response:
    """Change texts, rights and quota."""
    account = hub.accounts.get(name)
    quota = account.quota
    with form.beside("quota"):
        quota = parse_size(form.text("quota")) if form.text("quota") else None
    if not form.errors:
        update_profile(hub, form, account, admin.name)
    if not form.errors:
        with form.beside("rights"):
            user = account.kind == "user"
            hub.accounts.update(
                account.name,
                admin=form.checked("admin") if user else None,
                disabled=form.checked("disabled"),
                quota=quota,
                by=admin.name,
            )
            return RedirectResponse(f"{PATH}/{account.name}?saved=1", 303)
    return _one(hub, account, form)


@router.post(ONE + "/token")
def create_token(hub: HubDep, admin: AdministratorDep, form: FormDep, name: Segment) -> Response:
    """Create a token of scope write for a user, who can't log in without one, and show it only this once."""
    account = hub.accounts.get(name)
    with form.beside(""):
        token = hub.tokens.create(account.name, scope="write", by=admin.name)
        return _one(hub, account, Form(), token=token)
    return _one(hub, account, form)


@router.post(ONE + "/revoke")
def revoke(hub: HubDep, admin: AdministratorDep, form: FormDep, name: Segment) -> Response:
    """Revoke a token of a user."""
    account = hub.accounts.get(name)
    hub.tokens.revoke(account.name, form.values.get("token", ""), by=admin.name)
    return RedirectResponse(f"{PATH}/{account.name}?saved=1", 303)


def _list(hub: SharedHub, form: Form, q: str = "", after: str = "") -> Response:
    found = hub.accounts.page(q, after, ROWS + 1)
    following = found[ROWS - 1].name if len(found) > ROWS else None
    return page(
        "hub_accounts.html",
        form.status,
        form=form,
        accounts=found[:ROWS],
        following=following,
        q=q,
        after=after,
    )


def _one(hub: SharedHub, account: Account, form: Form, *, token: str = "", done: str = "") -> Response:
    return page(
        "hub_account.html",
        form.status,
        form=form,
        account=account,
        used=hub.accounts.used(account.name),
        tokens=hub.tokens.list(account.name),
        quota=_text(account.quota),
        made=token,
        done=done,
    )


def _text(quota: int | None) -> str:
    """A quota as its field accepts it, exactly."""
    if quota is None:
        return ""
    short = shown_size(quota)
    return short if parse_size(short) == quota else str(quota)
