"""Routing on undecoded paths.

Clients quote revisions and paths as one segment: the branch `a/b` as `a%2Fb`. Servers decode the path before routing,
which makes two segments of it. Here routing uses the raw path, and parameters declared as Segment or Rest are decoded
once.
"""

from typing import Annotated
from urllib.parse import unquote

from fastapi import Path
from pydantic import AfterValidator
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from kcard.hub.refusals import Invalid

__all__ = ["RawPath", "Rest", "Segment", "decoded", "refuse_nul"]


class RawPath:
    """ASGI middleware: routes match the raw path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (raw := scope.get("raw_path")):
            scope = {**scope, "path": raw.partition(b"?")[0].decode("ascii", "replace")}
        await self._app(scope, receive, send)


def decoded(text: str) -> str:
    """A part of a path without percent-encoding. Raises Invalid."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Invalid(f"path {text[:80]!r} is not UTF-8") from None


async def refuse_nul(request: Request) -> None:
    """A dependency of all endpoints: raise Invalid for a NUL in the path or query. PostgreSQL can't store it."""
    sent = request.scope["path"] + "?" + request.scope["query_string"].decode("latin-1")
    if "%00" in sent or "\0" in sent:
        raise Invalid("the path or the query contains a NUL character: remove %00")


# One path segment, decoded; it may contain quoted slashes.
Segment = Annotated[str, Path(), AfterValidator(decoded)]
# The rest of the path, decoded: declare the route with {name:path}.
Rest = Annotated[str, Path(), AfterValidator(decoded)]
