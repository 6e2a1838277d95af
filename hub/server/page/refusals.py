"""Errors as pages for browsers; other clients get the usual JSON."""

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from kcard.errors import KcardError
from kcard.hub.refusals import Gated, NotThere, Refused
from kcard.hub.server.errors import answer
from kcard.hub.server.page.render import page
from kcard.hub.server.visitor import LoginNeeded

__all__ = ["failed", "refused", "wants_html"]

TITLES = {
    400: "This request is not valid",
    401: "Not available without a login",
    403: "Not allowed",
    404: "Not found",
    409: "Conflict",
    413: "Too large",
    429: "Too many requests",
    501: "Not supported",
    503: "Not available at the moment",
}


def refused(request: Request, error: KcardError) -> Response:
    """The response for an error: a page if the client prefers HTML, outside of the API; where a page needs a login, the
    way there.
    """
    plain = answer(error)
    if not wants_html(request):
        return plain
    if isinstance(error, LoginNeeded) and error.path is not None:
        return RedirectResponse(f"/login?{urlencode({'next': error.path})}", 303)
    headers = {
        name: value
        for name, value in plain.headers.items()
        if name.startswith("x-") or name in ("retry-after", "www-authenticate")
    }
    status = plain.status_code
    if status == 413:
        headers["Connection"] = "close"  # the body was not read
    return page(
        "refusal.html",
        status,
        headers,
        title=TITLES[404] if isinstance(error, NotThere) else TITLES.get(status, "Something went wrong"),
        why=str(error) if isinstance(error, Refused) or status < 500 else "",
        gated=isinstance(error, Gated),
        path=request.scope["path"] if request.method == "GET" else "",
        here="",
    )


def failed(request: Request, identifier: str) -> Response:
    """The response for an unexpected error, which the log has under this identifier."""
    why = f"internal error: see the hub's log for request {identifier}"
    if not wants_html(request):
        return JSONResponse({"error": why}, 500)
    return page("refusal.html", 500, title="Something went wrong", why=why, gated=False, path="", here="")


def wants_html(request: Request) -> bool:
    """Whether errors are shown as pages."""
    return "text/html" in request.headers.get("accept", "") and not request.scope["path"].startswith("/api/")
