"""Log in with a name and a token, and log out."""

import secrets

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from kcard.hub.server.dependencies import HubDep, OptionsDep
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.forms.login_limit import LoginLimit
from kcard.hub.server.forms.next_path import next_path
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep, cookie, form_token, set_cookie

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

SEE_OTHER = 303


@router.get("/login")
def login_page(
    request: Request,
    hub: HubDep,
    options: OptionsDep,
    next: str = "/",  # noqa: A002
) -> Response:
    """The form. It needs a cookie too, so a browser without a session gets one that opens nothing."""
    if visitor.session is not None:
        return RedirectResponse(next_path(next), SEE_OTHER)
    given = cookie(request, options) or secrets.token_urlsafe(32)
    shown = _page(Form({"next": next_path(next)}), Visitor(form_token=form_token(hub, given)))
    set_cookie(shown, request, options, given)
    return shown


@router.post("/login")
def login(request: Request, hub: HubDep, options: OptionsDep, form: FormDep) -> Response:
    """Open a session with a new id, whatever cookie the browser had."""
    limit: LoginLimit = request.app.state.login_limit
    name, to = form.text("name"), next_path(form.text("next"))
    with form.beside("token"):
        limit.take(request.scope, name)
        id_ = hub.sessions.open(name, form.text("token"))
        done = RedirectResponse(to, SEE_OTHER)
        set_cookie(done, request, options, id_)
        if visitor.session is not None:
            hub.sessions.close(cookie(request, options))
        return done
    return _page(form, Visitor(form_token=visitor.form_token))


@router.post("/settings/logout")
def logout(request: Request, hub: HubDep, options: OptionsDep, form: FormDep, member: MemberDep) -> Response:
    """Close the session of this browser, or with `everywhere` all of the account."""
    if form.checked("everywhere"):
        hub.sessions.close_all(member.account_id)
    hub.sessions.close(cookie(request, options))
    done = RedirectResponse("/", SEE_OTHER)
    set_cookie(done, request, options, "")
    return done


def _page(form: Form) -> Response:
    return page("login.html", form.status, form=form)
