"""Paths as they were sent.

Clients quote revisions and tree paths as one segment: a branch `a/b` comes as `a%2Fb`. Servers decode the path before
routes see it, and then it is two segments. Here routes see it undecoded, and each parameter is decoded once, where it
is declared as a Segment or a Rest.
"""

from typing import Annotated
from urllib.parse import unquote

from fastapi import Path
from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

from kcard.hub.refusals import Invalid

__all__ = ["RawPath", "Rest", "Segment"]


class RawPath:
    """ASGI middleware: routes match the path as it was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (raw := scope.get("raw_path")):
            scope = {**scope, "path": raw.partition(b"?")[0].decode("ascii", "replace")}
        await self._app(scope, receive, send)


def _decoded(text: str) -> str:
    try:
        decoded = unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise Invalid(f"path {text[:80]!r} is not UTF-8") from None
    if "\0" in decoded:  # nothing is named so, and PostgreSQL takes no text that holds it
        raise Invalid(f"path {text[:80]!r} holds a NUL character")
    return decoded


# One segment of the path, decoded; it may hold slashes that were quoted.
Segment = Annotated[str, Path(), AfterValidator(_decoded)]
# Everything up to the end of the path, decoded: declare the route with {name:path}.
Rest = Annotated[str, Path(), AfterValidator(_decoded)]
