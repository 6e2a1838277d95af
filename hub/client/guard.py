"""Limits for what a hub may do to its client, which must not trust it: bytes, requests, waits, redirects, credentials.

Requests and responses are those of httpx, or of the library that huggingface_hub uses in its place.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from kcard.errors import HubError
from kcard.hub.client.url import PORTS, is_hugging_face
from kcard.hub.refusals import Dangerous, TooLarge
from kcard.sizes import shown_size

__all__ = ["LARGEST_ANSWERS", "Guard"]

LARGEST_ANSWERS = 64 << 20  # bytes of all answers within a block of `connect`
LARGEST_ERROR = 64 << 10  # bytes that are read of an answer with an error
MOST_REQUESTS = 10_000  # within a block
LONGEST_WAIT = 300  # seconds that a hub may ask the client to wait
TIMEOUT = {"connect": 10.0, "read": 60.0, "write": 60.0, "pool": 60.0}
READING = ("GET", "HEAD")
# huggingface_hub makes file names of these headers.
NAMING = ("ETag", "X-Linked-Etag", "X-Repo-Commit")
PLAIN = re.compile(r'(W/)?"?[\w.+=~-]{0,200}"?', re.ASCII)
# Retry-After: 120, or RateLimit: "api";r=0;t=55 where nothing remains.
WAIT = re.compile(r"^\s*([0-9]{1,20})|r=0\s*;\s*t=([0-9]{1,20})")


@dataclass
class Guard:
    """The limits for one hub, and what was used of them.

    largest  bytes of all answers
    """

    url: str
    largest: int = LARGEST_ANSWERS
    received: int = 0
    requests: int = 0

    def check_request(self, request: Any) -> None:
        """Before a request is sent, also to follow a redirect. Raises Dangerous, TooLarge."""
        self._check_destination(str(request.url), "authorization" in request.headers)
        request.headers["Accept-Encoding"] = "identity"
        if request.method in READING or "/api/" in request.url.path:  # no parts of an upload
            self.requests += 1
        if self.requests > MOST_REQUESTS:
            raise TooLarge(f"{self.url} needs more than {MOST_REQUESTS} requests for one answer: refused")
        if request.method not in READING:
            return
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
