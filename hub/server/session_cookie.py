"""The cookie of a session, and the token that goes with every form of the pages."""

import hashlib
import hmac
import re

from fastapi import Request
from starlette.responses import Response

from kcard.hub.accounts.sessions import LONGEST

__all__ = ["form_token", "read", "write"]

COOKIE = "kcard_session"
# Browsers accept this prefix only for a cookie that is Secure, for the whole host and for no other.
SECURE_COOKIE = "__Host-kcard_session"
PURPOSE = b"form."
ID = re.compile(r"[A-Za-z0-9_-]{20,100}")


def read(request: Request, url: str) -> str:
    """The id of the session that a browser sent; "" without one. `url`: that of the hub."""
    found = request.cookies.get(_name(url), "")
    return found if ID.fullmatch(found) else ""


def write(response: Response, url: str, id_: str) -> None:
    """Give the browser the id of a session; "" deletes the cookie."""
    response.set_cookie(
        _name(url),
        id_,
        max_age=int(LONGEST.total_seconds()) if id_ else 0,
        path="/",
        secure=_https(url),
        httponly=True,
        samesite="lax",
    )


def form_token(secret: bytes, id_: str) -> str:
    """Proves that a form was made for the browser with this cookie. Other sites can't read it, nor the cookie."""
    return hmac.digest(secret, PURPOSE + hashlib.sha256(id_.encode()).digest(), "sha256").hex()


def _https(url: str) -> bool:
    return url.startswith("https:")


def _name(url: str) -> str:
    return SECURE_COOKIE if _https(url) else COOKIE
