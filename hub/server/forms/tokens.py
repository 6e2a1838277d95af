"""The tokens of one's own account: list, create, revoke."""

from datetime import datetime, timedelta
from typing import get_args

from fastapi import APIRouter
from starlette.responses import RedirectResponse, Response

from kcard.hub.accounts.identity import Identity, Scope
from kcard.hub.records.utc import now
from kcard.hub.refusals import Forbidden, Invalid
from kcard.hub.repositories.permissions import require_unbound
from kcard.hub.server.dependencies import HubDep, get_repository
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep, VisitorDep
from kcard.hub.shared import SharedHub

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

PATH = "/settings/tokens"
SCOPES: tuple[Scope, ...] = get_args(Scope)
NEVER = "never"
LIFETIMES = (("30", "30 days"), ("90", "90 days"), ("365", "a year"), (NEVER, "until it is revoked"))


@router.get(PATH)
def tokens_page(hub: HubDep, member: MemberDep) -> Response:
    """The tokens, and the form for a new one."""
    return _page(hub, member, Form())


@router.post(PATH)
def create(hub: HubDep, member: MemberDep, visitor: VisitorDep, form: FormDep) -> Response:
    """Create a token and show it, only this once."""
    scope: Scope = "read"
    with form.beside("scope"):
        scope = _scope(form, member)
    days = None
    with form.beside("days"):
        days = _days(form, None if visitor.session is None else visitor.session.until)
    if not form.errors:
        with form.beside("repository" if form.text("repository") else "name"):
            name, repository = form.text("name") or None, _repository(hub, form, member)
            made = hub.tokens.create(
                member.name, name=name, scope=scope, repository=repository, days=days, by=member.name
            )
            return _page(hub, member, Form(), made)
    return _page(hub, member, form)


@router.post(PATH + "/revoke")
def revoke(hub: HubDep, member: MemberDep, form: FormDep) -> Response:
    """Revoke a token, with the sessions that it opened."""
    require_unbound(member)
    hub.tokens.revoke(member.name, form.values.get("name", ""), by=member.name)
    return RedirectResponse(PATH, 303)


def _page(hub: SharedHub, member: Identity, form: Form, made: str | None = None) -> Response:
    return page(
        "tokens.html",
        form.status,
        form=form,
        tokens=hub.tokens.list(member.name),
        made=made,
        scopes=[(scope, scope) for scope in _scopes(member)],
        lifetimes=LIFETIMES,
        now=now(),
    )


def _scopes(member: Identity) -> tuple[Scope, ...]:
    """The scopes of tokens that the session may create: none beyond its own."""
    return SCOPES[: SCOPES.index(member.scope) + 1]


def _scope(form: Form, member: Identity) -> Scope:
    require_unbound(member)
    wanted = form.choice("scope", *SCOPES)
    scope = next(scope for scope in SCOPES if scope == wanted)
    if scope not in _scopes(member):
        raise Forbidden(
            f"you logged in with a token of scope {member.scope}: log in with one of scope {scope}"
        )
    return scope


def _repository(hub: SharedHub, form: Form, member: Identity) -> str | None:
    """The only repository of the token, which the session may read; None: all."""
    given = form.text("repository")
    if not given:
        return None
    own = given.removeprefix("datasets/")
    get_repository(hub, "model" if own == given else "dataset", own, member)
    return given


def _days(form: Form, until: datetime | None) -> float | None:
    """The lifetime; None: until revoked. No token outlives the one of the session, which expires at `until`."""
    chosen = form.choice("days", *(value for value, _ in LIFETIMES))
    days = None if chosen == NEVER else float(chosen)
    if until is not None and (days is None or now() + timedelta(days=days) > until):
        raise Invalid(f"the token that you logged in with expires at {_shown(until)}: choose less than that")
    return days


def _shown(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
