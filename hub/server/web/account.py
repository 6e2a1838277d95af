"""Pages of accounts: login, tokens, and asking for access to a gated card."""

import secrets
from dataclasses import replace
from datetime import timedelta
from typing import get_args

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts import Identity
from kcard.hub.db.models import Scope, now
from kcard.hub.errors import Forbidden, Invalid
from kcard.hub.permissions import require_unrestricted
from kcard.hub.server import dependencies
from kcard.hub.server.dependencies import HubDep, OptionsDep, Segment, base_url, get_repository, web_type
from kcard.hub.server.limits import LoginLimit
from kcard.hub.server.routes.access import require_gated
from kcard.hub.server.web.forms import Form, FormDep, MemberDep, VisitorDep, next_path
from kcard.hub.server.web.render import page, page_address
from kcard.hub.services import HubServices

router = APIRouter(include_in_schema=False)

SEE_OTHER = 303
TOKENS_PATH = "/settings/tokens"
ACCESS_PATH = "/{namespace}/{name}/access"
SCOPES: tuple[Scope, ...] = get_args(Scope)
NEVER_EXPIRES = "never"
LIFETIMES = (("30", "30 days"), ("90", "90 days"), ("365", "a year"), (NEVER_EXPIRES, "until it is revoked"))


@router.get("/login")
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
    response = page("login.html", form=Form({"next": next_path(next)}), visitor=current)
    dependencies.write_session_cookie(response, url, id_)
    return response


@router.post("/login")
def login(request: Request, hub: HubDep, options: OptionsDep, form: FormDep, visitor: VisitorDep) -> Response:
    """Open a session with a new id, replacing the browser's cookie."""
    limit: LoginLimit = request.app.state.login_limit
    name, url = form.text("name"), base_url(request, options)
    id_ = ""
    with form.errors_at("token"):
        limit.take(request.scope, name)
        id_ = hub.sessions.open(name, form.text("token"))
    if form.errors:
        return page("login.html", form.status, form=form, visitor=visitor)
    hub.sessions.close(dependencies.read_session_cookie(request, url))
    response = RedirectResponse(next_path(form.text("next")), SEE_OTHER)
    dependencies.write_session_cookie(response, url, id_)
    return response


@router.post("/settings/logout")
def logout(request: Request, hub: HubDep, options: OptionsDep, form: FormDep, member: MemberDep) -> Response:
    """Close the session of this browser, or with `everywhere` all of the account."""
    url = base_url(request, options)
    if "everywhere" in form.values:
        hub.sessions.close_all(member.account_id)
    hub.sessions.close(dependencies.read_session_cookie(request, url))
    response = RedirectResponse("/", SEE_OTHER)
    dependencies.write_session_cookie(response, url, "")
    return response


@router.get(TOKENS_PATH)
def tokens_page(hub: HubDep, member: MemberDep) -> Response:
    """Show the tokens, and the form for a new one."""
    return render_tokens_page(hub, member, Form())


@router.post(TOKENS_PATH)
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
        days = None if lifetime == NEVER_EXPIRES else float(lifetime)
        # No token outlives the one of the session.
        until = None if visitor.session is None else visitor.session.until
        if until is not None and (days is None or now() + timedelta(days=days) > until):
            raise Invalid(
                f"the token that you logged in with expires at {until:%Y-%m-%d %H:%M} UTC: choose less than that"
            )
    if form.errors:
        return render_tokens_page(hub, member, form)
    new_token = None
    # The only repository of the token, which the session may read; None: all.
    repository = form.text("repository") or None
    with form.errors_at("repository" if repository else "name"):
        if repository is not None:
            own = repository.removeprefix("datasets/")
            get_repository(hub, "model" if own == repository else "dataset", own, member)
        name = form.text("name") or None
        new_token = hub.tokens.create(
            member.name, name=name, scope=scope, repository=repository, days=days, by=member.name
        )
        form = Form()
    return render_tokens_page(hub, member, form, new_token)


@router.post(TOKENS_PATH + "/revoke")
def revoke(hub: HubDep, member: MemberDep, form: FormDep) -> Response:
    """Revoke a token, with the sessions that it opened."""
    require_unrestricted(member)
    hub.tokens.revoke(member.name, form.values.get("name", ""), by=member.name)
    return RedirectResponse(TOKENS_PATH, SEE_OTHER)


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


@router.post(ACCESS_PATH)
@router.post("/datasets" + ACCESS_PATH)
def ask(
    request: Request, hub: HubDep, member: MemberDep, namespace: Segment, name: Segment, form: FormDep
) -> Response:
    """Ask for access with a note. Asking again does not change it."""
    repository = get_repository(hub, web_type(request), f"{namespace}/{name}", member)
    require_gated(repository)
    note = form.text("note").replace("\r\n", "\n").replace("\r", "\n")
    hub.repositories.request_access(repository, member.account_id, note)
    return RedirectResponse(page_address(repository), SEE_OTHER)
