"""Log in with a name and a token, and log out."""

import secrets
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from kcard.hub.server import session_cookie
from kcard.hub.server.dependencies import HubDep, OptionsDep, base_url
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.forms.next_path import next_path
from kcard.hub.server.limits import LoginLimit
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep, Visitor, VisitorDep

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

SEE_OTHER = 303


@router.get("/login")
def login_page(
    request: Request,
    hub: HubDep,
    options: OptionsDep,
    visitor: VisitorDep,
    next: str = "/",  # noqa: A002
) -> Response:
    """The form. It needs a cookie too, so a browser without a session gets one that opens nothing."""
    if visitor.session is not None:
        return RedirectResponse(next_path(next), SEE_OTHER)
    url = base_url(request, options)
    id_ = session_cookie.read(request, url) or secrets.token_urlsafe(32)
    looks = replace(visitor, form_token=session_cookie.form_token(hub.secret, id_))
    shown = _page(Form({"next": next_path(next)}), looks)
    session_cookie.write(shown, url, id_)
    return shown


@router.post("/login")
def login(request: Request, hub: HubDep, options: OptionsDep, form: FormDep, visitor: VisitorDep) -> Response:
    """Open a session with a new id, whatever cookie the browser had."""
    limit: LoginLimit = request.app.state.login_limit
    name, url = form.text("name"), base_url(request, options)
    with form.beside("token"):
        limit.take(request.scope, name)
        id_ = hub.sessions.open(name, form.text("token"))
        hub.sessions.close(session_cookie.read(request, url))
        done = RedirectResponse(next_path(form.text("next")), SEE_OTHER)
        session_cookie.write(done, url, id_)
        return done
    return _page(form, visitor)


@router.post("/settings/logout")
def logout(request: Request, hub: HubDep, options: OptionsDep, form: FormDep, member: MemberDep) -> Response:
    """Close the session of this browser, or with `everywhere` all of the account."""
    url = base_url(request, options)
    if form.checked("everywhere"):
        hub.sessions.close_all(member.account_id)
    hub.sessions.close(session_cookie.read(request, url))
    done = RedirectResponse("/", SEE_OTHER)
    session_cookie.write(done, url, "")
    return done


def _page(form: Form, visitor: Visitor) -> Response:
    return page("login.html", form.status, form=form, visitor=visitor)
