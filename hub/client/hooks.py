"""Applies a guard to huggingface_hub, which has one HTTP client for the whole process.

The guard is called by event hooks of that client, and only for requests with its mark: a header that an HfApi adds, and
that is removed before the request is sent.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kcard.hub.client.guard import Guard

__all__ = ["guarded"]

MARK = "X-Kcard-Guard"

_guards: dict[str, Guard] = {}


@contextmanager
def guarded(guard: Guard) -> Iterator[dict[str, str]]:
    """Apply the guard until the end of the block, to requests with the headers that it yields."""
    _install()
    mark = uuid.uuid4().hex
    _guards[mark] = guard
    try:
        yield {MARK: mark}
    finally:
        del _guards[mark]


def _install() -> None:
    """Hook into huggingface_hub's client and every later one: it makes a new one after a broken connection."""
    from huggingface_hub.utils import _http

    http: Any = _http
    make: Callable[[], Any] = http._GLOBAL_CLIENT_FACTORY  # set_client_factory would close connections
    if getattr(make, "guarded", False):
        return

    def made() -> Any:
        return _hooked(make())

    made.guarded = True  # type: ignore[attr-defined]
    http._GLOBAL_CLIENT_FACTORY = made
    _hooked(http.get_session())


def _hooked(client: Any) -> Any:
    if _on_request not in client.event_hooks["request"]:
        client.event_hooks["request"].append(_on_request)
        client.event_hooks["response"].append(_on_response)
    return client


def _on_request(request: Any) -> None:
    mark = request.headers.pop(MARK, None)
    if mark is not None:
        request.extensions[MARK] = mark  # redirects keep it
    if (guard := _guards.get(request.extensions.get(MARK))) is not None:
        guard.check_request(request)


def _on_response(response: Any) -> None:
    if (guard := _guards.get(response.request.extensions.get(MARK))) is not None:
        guard.check_response(response)
