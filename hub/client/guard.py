"""Limits for what a hub may do to its client, which must not trust it: bytes, requests, waits, redirects, credentials.

huggingface_hub has one HTTP client for the whole process. The guard is a pair of its event hooks, and applies only to
the requests of an HfApi that carries the guard's mark, which is removed before a request is sent.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from kcard.errors import HubError
from kcard.hub.client.url import PORTS, is_hugging_face
from kcard.hub.refusals import Dangerous, TooLarge
from kcard.sizes import shown_size

__all__ = ["LARGEST_ANSWERS", "MARK", "Guard", "guarded"]

MARK = "X-Kcard-Guard"
LARGEST_ANSWERS = 64 << 20  # bytes of all answers within a block of `connect`
LARGEST_ERROR = 64 << 10  # bytes that are read of an answer with an error
MOST_REQUESTS = 1_000  # that only read, within a block
LONGEST_WAIT = 300  # seconds that a hub may ask the client to wait
TIMEOUT = {"connect": 10.0, "read": 60.0, "write": 60.0, "pool": 60.0}
READING = ("GET", "HEAD")
# huggingface_hub makes file names of these headers.
NAMING = ("ETag", "X-Linked-Etag", "X-Repo-Commit")
PLAIN = re.compile(r'(W/)?"?[\w.+=~-]{0,200}"?', re.ASCII)
# Retry-After: 120, or RateLimit: "api";r=0;t=55 where nothing remains.
WAIT = re.compile(r"^\s*([0-9]{1,20})|r=0\s*;\s*t=([0-9]{1,20})")

_guards: dict[str, "Guard"] = {}


@dataclass
class Guard:
    """The limits for one hub, and what was used of them.

    largest  bytes of all answers
    mark     the value of the header MARK in its requests
    """

    url: str
    largest: int = LARGEST_ANSWERS
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    received: int = 0
    requests: int = 0

    def check_request(self, request: Any) -> None:
        """Before a request is sent, also to follow a redirect. Raises Dangerous, TooLarge."""
        self._check_destination(str(request.url), "authorization" in request.headers)
        request.headers["Accept-Encoding"] = "identity"
        if request.method not in READING:
            return
        self.requests += 1
        if self.requests > MOST_REQUESTS:
            raise TooLarge(f"{self.url} needs more than {MOST_REQUESTS} requests for one answer: refused")
        limits = request.extensions.get("timeout", {})
        request.extensions["timeout"] = {key: limits.get(key) or TIMEOUT[key] for key in TIMEOUT}

    def check_response(self, response: Any) -> None:
        """Before the body of an answer is read. Raises Dangerous, TooLarge, HubError."""
        headers = response.headers
        if headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
            raise Dangerous(f"{self.url} sent a compressed answer, which was not requested: refused")
        for name in NAMING if "X-Repo-Commit" in headers else ():
            if not PLAIN.fullmatch(headers.get(name, "")):
                raise Dangerous(
                    f"{self.url} sent the {name} {headers[name][:80]!r}, which is no plain name: refused"
                )
        if response.status_code >= 400 and _wait(headers) > LONGEST_WAIT:
            raise HubError(f"{self.url} is busy for more than {LONGEST_WAIT} s: try again later")
        if response.request.method == "HEAD":
            return
        length = headers.get("Content-Length", "")
        if response.status_code >= 400:
            response.stream = _wrapped(response, self._start_of)
        elif length.isdecimal() and int(length[:20]) > self.largest - self.received:
            raise self._too_large()
        else:
            response.stream = _wrapped(response, self._counted)

    def _check_destination(self, url: str, authorized: bool) -> None:
        ours, there = _origin(self.url), _origin(url)
        if there[0] not in PORTS or (ours[0] == "https" and there[0] != "https"):
            raise Dangerous(f"{self.url} leads to {there[0]}://{there[1]}, which is not encrypted: refused")
        upgraded = ours[1] == there[1] and (*ours[::2], *there[::2]) == ("http", 80, "https", 443)
        same = ours == there or upgraded or (is_hugging_face(self.url) and is_hugging_face(url))
        if authorized and not same:
            raise Dangerous(
                f"{self.url} leads to {there[0]}://{there[1]}, which must not get your token: refused"
            )

    def _counted(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.received += len(part)
            if self.received > self.largest:
                raise self._too_large()
            yield part

    @staticmethod
    def _start_of(parts: Iterator[bytes]) -> Iterator[bytes]:
        left = LARGEST_ERROR
        for part in parts:
            yield part[:left]
            left -= len(part)
            if left <= 0:
                return

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"{self.url} sends more than the {shown_size(self.largest)} that were expected: refused"
        )


@contextmanager
def guarded(guard: Guard) -> Iterator[None]:
    """Apply the guard to the requests that carry its mark, until the end of the block."""
    _install()
    _guards[guard.mark] = guard
    try:
        yield
    finally:
        del _guards[guard.mark]


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


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or PORTS.get(parts.scheme)


def _wait(headers: Any) -> int:
    """Seconds for which the headers of an error tell the client to wait."""
    found = WAIT.findall(f"{headers.get('Retry-After', '')} {headers.get('RateLimit', '')}")
    return max((int(seconds or again) for seconds, again in found), default=0)


def _wrapped(response: Any, through: Callable[[Iterator[bytes]], Iterator[bytes]]) -> Any:
    """The response's stream, read through a function; of the class that the HTTP library requires."""
    base: Any = import_module(type(response).__module__.partition(".")[0]).SyncByteStream
    whole = response.stream

    class Limited(base):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            return through(iter(whole))

        def close(self) -> None:
            whole.close()

    return Limited()
