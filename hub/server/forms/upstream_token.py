"""One's own token for the hub that this one mirrors."""

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from kcard.hub.repositories.permissions import require_unbound
from kcard.hub.server.endpoints.upstream import mirroring, store_token
from kcard.hub.server.forms.form import Form, FormDep
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import MemberDep

__all__ = ["router"]

router = APIRouter(include_in_schema=False)
PATH = "/settings/upstream"


@router.get(PATH)
def token_page(request: Request, member: MemberDep, saved: str = "") -> Response:
    """Whether a token is stored, and the form for another one; the token itself is never shown."""
    return _page(request, member.account_id, Form(), "Saved." if saved else "")


@router.post(PATH)
def save(request: Request, member: MemberDep, form: FormDep) -> Response:
    """Store a token, or delete the stored one where the field is empty."""
    require_unbound(member)
    found, token = mirroring(request), form.text("token")
    with form.beside("token"):
        if token:
            store_token(found, member.account_id, token)
        else:
            found.tokens.forget(member.account_id)
    if form.errors:
        return _page(request, member.account_id, Form({}, form.errors, form.status))
    return RedirectResponse(f"{PATH}?saved=1", 303)


def _page(request: Request, account_id: int, form: Form, done: str = "") -> Response:
    found = mirroring(request)
    stored = found.tokens.find(account_id) is not None
    return page(
        "upstream_token.html", form.status, form=form, upstream=found.options.url, stored=stored, done=done
    )
