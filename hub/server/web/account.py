"""Pages of accounts: login, profile, tokens and organisations."""

import secrets
from dataclasses import replace
from datetime import timedelta
from typing import get_args

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts import Identity, check_text, fold_name
from kcard.hub.db.models import Account, RepositoryType, Role, Scope, now
from kcard.hub.errors import Forbidden, Invalid, NotFound
from kcard.hub.permissions import (
    is_administrator,
    may_administer_namespace,
    may_create,
    require_administer_namespace,
    require_unrestricted,
)
from kcard.hub.repositories import ListQuery
from kcard.hub.server import dependencies
from kcard.hub.server.dependencies import (
    HubDep,
    MemberDep,
    OptionsDep,
    Segment,
    Visitor,
    VisitorDep,
    base_url,
    get_repository,
)
from kcard.hub.server.limits import LoginLimit
from kcard.hub.server.web.cards import RepositoryRow, make_rows
from kcard.hub.server.web.render import Form, FormDep, next_path, page
from kcard.hub.services import HubServices

# The page of a user or an organisation: description, cards and datasets.

account_page_router = APIRouter(include_in_schema=False)

ROWS = 50


@account_page_router.get("/{account}")
def account_page(
    hub: HubDep, visitor: VisitorDep, account: Segment, cursor: str = "", datasets: str = ""
) -> Response:
    """Show what the client may read. To anonymous visitors, an account without published repositories is not found."""
    type_: RepositoryType = "dataset" if datasets else "model"
    try:
        owner = hub.accounts.get(account)
    except NotFound:
        raise page_not_found(account) from None
    cards, next_cards = _list_repositories(hub, owner, "model", "" if datasets else cursor, visitor.identity)
    data, next_data = _list_repositories(hub, owner, "dataset", cursor if datasets else "", visitor.identity)
    if visitor.identity is None and not (cards or data or cursor):
        raise page_not_found(account)
    members = {}
    if owner.kind == "organisation" and visitor.identity is not None:
        members = hub.accounts.members(owner.name)
    return page(
        "account.html",
        account=owner,
        lists=((("model", "Cards"), cards, next_cards), (("dataset", "Datasets"), data, next_data)),
        shown=type_ if cursor else None,
        members=members,
        creates=may_create(visitor.identity, owner.name),
        administers=visitor.session is not None and may_administer_namespace(visitor.identity, owner.name),
    )


def page_not_found(name: str) -> NotFound:
    return NotFound("account", f"page {name[:100]!r} not found: check the address, or log in")


def _list_repositories(
    hub: HubServices, account: Account, type_: RepositoryType, cursor: str, identity: Identity | None
) -> tuple[list[RepositoryRow], str | None]:
    query = ListQuery(type_, author=account.name, limit=ROWS, cursor=cursor or None)
    repositories, following = hub.listing.page(query, identity)
    return make_rows(hub, repositories), following


# Log in with a name and a token, and log out.

login_router = APIRouter(include_in_schema=False)

SEE_OTHER = 303


@login_router.get("/login")
def login_page(
    request: Request,
    hub: HubDep,
    options: OptionsDep,
    visitor: VisitorDep,
    next: str = "/",  # noqa: A002
) -> Response:
    """Show the form. Its token needs a cookie, so a browser without a session gets one that belongs to no session."""
    if visitor.session is not None:
        return RedirectResponse(next_path(next), SEE_OTHER)
    url = base_url(request, options)
    id_ = dependencies.read_session_cookie(request, url) or secrets.token_urlsafe(32)
    current = replace(visitor, form_token=dependencies.form_token(hub.secret, id_))
    response = render_login_page(Form({"next": next_path(next)}), current)
    dependencies.write_session_cookie(response, url, id_)
    return response


@login_router.post("/login")
def login(request: Request, hub: HubDep, options: OptionsDep, form: FormDep, visitor: VisitorDep) -> Response:
    """Open a session with a new id, replacing the browser's cookie."""
    limit: LoginLimit = request.app.state.login_limit
    name, url = form.text("name"), base_url(request, options)
    with form.errors_at("token"):
        limit.take(request.scope, name)
        id_ = hub.sessions.open(name, form.text("token"))
        hub.sessions.close(dependencies.read_session_cookie(request, url))
        response = RedirectResponse(next_path(form.text("next")), SEE_OTHER)
        dependencies.write_session_cookie(response, url, id_)
        return response
    return render_login_page(form, visitor)


@login_router.post("/settings/logout")
def logout(request: Request, hub: HubDep, options: OptionsDep, form: FormDep, member: MemberDep) -> Response:
    """Close the session of this browser, or with `everywhere` all of the account."""
    url = base_url(request, options)
    if form.is_checked("everywhere"):
        hub.sessions.close_all(member.account_id)
    hub.sessions.close(dependencies.read_session_cookie(request, url))
    response = RedirectResponse("/", SEE_OTHER)
    dependencies.write_session_cookie(response, url, "")
    return response


def render_login_page(form: Form, visitor: Visitor) -> Response:
    return page("login.html", form.status, form=form, visitor=visitor)


# The profile of the member's own account, and changes of any account's profile.

profile_router = APIRouter(include_in_schema=False)

SAVED = "Saved."


@profile_router.get("/settings")
def profile_page(hub: HubDep, member: MemberDep, saved: str = "") -> Response:
    """Show the form with the stored profile."""
    return render_profile_page(hub.accounts.get(member.name), Form(), SAVED if saved else "")


@profile_router.post("/settings")
def save(hub: HubDep, member: MemberDep, form: FormDep) -> Response:
    """Change the member's own full name, address and description."""
    require_administer_namespace(member, member.name)
    account = hub.accounts.get(member.name)
    update_profile(hub, form, account, member.name)
    return render_profile_page(account, form) if form.errors else RedirectResponse("/settings?saved=1", 303)


def update_profile(hub: HubServices, form: Form, account: Account, by: str) -> None:
    """Change the texts of an account that are in the form, all or none; errors are shown at their fields."""
    texts = {name: form.long_text(name).strip() for name in ("fullname", "email", "description")}
    texts = {name: text for name, text in texts.items() if name in form.values}
    for name, text in texts.items():
        with form.errors_at(name):
            check_text(name, text)
    changed = {name: text for name, text in texts.items() if text != getattr(account, name)}
    if changed and not form.errors:
        hub.accounts.update(account.name, by=by, **changed)  # type: ignore[arg-type]  # texts only


def render_profile_page(account: Account, form: Form, done: str = "") -> Response:
    return page("profile.html", form.status, form=form, account=account, done=done)


# The tokens of the member's own account: list, create, revoke.

tokens_router = APIRouter(include_in_schema=False)

PATH = "/settings/tokens"
SCOPES: tuple[Scope, ...] = get_args(Scope)
NEVER = "never"
LIFETIMES = (("30", "30 days"), ("90", "90 days"), ("365", "a year"), (NEVER, "until it is revoked"))


@tokens_router.get(PATH)
def tokens_page(hub: HubDep, member: MemberDep) -> Response:
    """Show the tokens, and the form for a new one."""
    return render_tokens_page(hub, member, Form())


@tokens_router.post(PATH)
def create_token(hub: HubDep, member: MemberDep, visitor: VisitorDep, form: FormDep) -> Response:
    """Create a token, and show it this one time."""
    scope: Scope = "read"
    with form.errors_at("scope"):
        require_unrestricted(member)
        choice = form.choice("scope", *SCOPES)
        scope = next(scope for scope in SCOPES if scope == choice)
        if scope not in _allowed_scopes(member):
            raise Forbidden(
                f"you logged in with a token of scope {member.scope}: log in with one of scope {scope}"
            )
    days: float | None = None
    with form.errors_at("days"):
        lifetime = form.choice("days", *(value for value, _ in LIFETIMES))
        days = None if lifetime == NEVER else float(lifetime)
        # No token outlives the one of the session.
        until = None if visitor.session is None else visitor.session.until
        if until is not None and (days is None or now() + timedelta(days=days) > until):
            raise Invalid(
                f"the token that you logged in with expires at {until:%Y-%m-%d %H:%M} UTC: choose less than that"
            )
    if not form.errors:
        with form.errors_at("repository" if form.text("repository") else "name"):
            name = form.text("name") or None
            # The only repository of the token, which the session may read; None: all.
            repository = form.text("repository") or None
            if repository is not None:
                own = repository.removeprefix("datasets/")
                get_repository(hub, "model" if own == repository else "dataset", own, member)
            new_token = hub.tokens.create(
                member.name, name=name, scope=scope, repository=repository, days=days, by=member.name
            )
            return render_tokens_page(hub, member, Form(), new_token)
    return render_tokens_page(hub, member, form)


@tokens_router.post(PATH + "/revoke")
def revoke(hub: HubDep, member: MemberDep, form: FormDep) -> Response:
    """Revoke a token, with the sessions that it opened."""
    require_unrestricted(member)
    hub.tokens.revoke(member.name, form.values.get("name", ""), by=member.name)
    return RedirectResponse(PATH, 303)


def render_tokens_page(
    hub: HubServices, member: Identity, form: Form, new_token: str | None = None
) -> Response:
    return page(
        "tokens.html",
        form.status,
        form=form,
        tokens=hub.tokens.list(member.name),
        new_token=new_token,
        scopes=[(scope, scope) for scope in _allowed_scopes(member)],
        lifetimes=LIFETIMES,
        now=now(),
    )


def _allowed_scopes(member: Identity) -> tuple[Scope, ...]:
    """Return the scopes of tokens that the session may create: its own and lower ones."""
    return SCOPES[: SCOPES.index(member.scope) + 1]


organisations_router = APIRouter(include_in_schema=False)

ROLES: tuple[Role, ...] = get_args(Role)
OWN = "/settings/organizations"
ONE = "/organizations/{organisation}"
MOST = 10  # that a user may administer, since each has a quota of its own


@organisations_router.get(OWN)
def own(member: MemberDep) -> Response:
    """Show the member's organisations, and the form for a new one."""
    return page("organisations.html", form=Form(), organisations=member.organisations)


@organisations_router.post(OWN)
def create_organisation(hub: HubDep, member: MemberDep, form: FormDep) -> Response:
    """Create an organisation; its creator administers it."""
    with form.errors_at("name"):
        require_administer_namespace(member, member.name)
        if not is_administrator(member) and hub.accounts.count_administered(member.account_id) >= MOST:
            raise Forbidden(
                f"you administer {MOST} organisations already: leave one, or ask an administrator of this hub"
            )
        organisation = hub.accounts.add_organisation(
            form.text("name"), owner=member.name, fullname=form.text("fullname"), by=member.name
        )
        return RedirectResponse(f"/organizations/{organisation.name}", 303)
    return page("organisations.html", form.status, form=form, organisations=member.organisations)


@organisations_router.get(ONE)
def organisation_page(hub: HubDep, member: MemberDep, organisation: Segment, saved: str = "") -> Response:
    """Show the members, and to administrators the forms that change them."""
    account = get_organisation(hub, organisation)
    return render_organisation_page(hub, account, member, Form(), SAVED if saved else "")


@organisations_router.post(ONE)
def save_organisation(hub: HubDep, member: MemberDep, form: FormDep, organisation: Segment) -> Response:
    """Change the full name and the description."""
    account = get_organisation(hub, organisation)
    require_administer_namespace(member, account.name)
    update_profile(hub, form, account, member.name)
    return render_organisation_page(hub, account, member, form) if form.errors else _redirect_saved(account)


@organisations_router.post(ONE + "/members")
def set_member(hub: HubDep, member: MemberDep, form: FormDep, organisation: Segment) -> Response:
    """Add a user, change a role, or remove a user."""
    account = get_organisation(hub, organisation)
    require_administer_namespace(member, account.name)
    with form.errors_at("user"):
        choice = form.choice("role", *ROLES, "none")
        role = next((role for role in ROLES if role == choice), None)
        hub.accounts.set_member(account.name, form.text("user"), role, by=member.name)
        return _redirect_saved(account)
    return render_organisation_page(hub, account, member, form)


@organisations_router.post(ONE + "/leave")
def leave(hub: HubDep, member: MemberDep, form: FormDep, organisation: Segment) -> Response:
    """Leave an organisation. Its last administrator can't."""
    account = get_organisation(hub, organisation)
    require_administer_namespace(member, member.name)
    with form.errors_at("leave"):
        hub.accounts.set_member(account.name, member.name, None, by=member.name)
        return RedirectResponse(OWN, 303)
    return render_organisation_page(hub, account, member, form)


def get_organisation(hub: HubServices, name: str) -> Account:
    account = hub.accounts.get(name)
    if account.kind != "organisation":
        raise NotFound("account", f"{account.name} is not an organisation")
    return account


def _redirect_saved(account: Account) -> Response:
    return RedirectResponse(f"/organizations/{account.name}?saved=1", 303)


def render_organisation_page(
    hub: HubServices, account: Account, member: Identity, form: Form, done: str = ""
) -> Response:
    return page(
        "organisation.html",
        form.status,
        form=form,
        account=account,
        members=hub.accounts.members(account.name),
        roles=ROLES,
        administers=may_administer_namespace(member, account.name),
        belongs=any(fold_name(name) == fold_name(account.name) for name in member.organisations),
        done=done,
    )
