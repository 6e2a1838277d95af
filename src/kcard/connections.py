"""Connections to servers: whether one answers, a client of OpenAI-compatible ones, and a limit on what they send.

A reply without end would fill the memory. The hooks that limit it are for clients of httpx and of httpx2, on which the
openai package is built from its version 3 on.
"""

import socket
import threading
import urllib.error
import urllib.request
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kcard.config import is_on_this_machine
from kcard.events import OnEvent, ignore, note
from kcard.io import shown_size

if TYPE_CHECKING:
    import httpx
    from openai import OpenAI

# Whether a server answers; no question is sent to it.

PORTS = {"http": 80, "https": 443}
CONNECT_SECONDS = 10.0  # until a running server should have accepted a connection
T = TypeVar("T")


class Later(Generic[T]):
    """A call in a background thread, whose result is awaited with a time-out."""

    def __init__(self, call: Callable[[], T], otherwise: T) -> None:
        """Start the call. `otherwise` is the result until it has returned."""
        self._result = otherwise

        def run() -> None:
            self._result = call()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def result(self, seconds: float) -> T:
        """Return what the call returned, if it did within `seconds` from now."""
        self._thread.join(seconds)
        return self._result


def silence(url: str, seconds: float) -> str:
    """Return why no web server answers at `url`; empty if one does, with any status."""
    try:
        require_listener(url)
        request = urllib.request.Request(url, method="HEAD")
        urllib.request.urlopen(request, timeout=seconds).close()
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", "") or error)
    return ""


def require_listener(url: str) -> None:
    """Raise ConnectionRefusedError if nothing listens at `url`: clients of HTTP would try again for half a minute."""
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port or PORTS.get(parts.scheme)
    is_direct = is_on_this_machine(url) or parts.scheme not in getproxies() or bool(proxy_bypass(host or ""))
    if not is_direct:
        return
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        raise
    except OSError:  # the request itself tells what is wrong
        return


def network_errors() -> tuple[type[Exception], ...]:
    """Return the errors of the Hugging Face Hub, and of whichever HTTP library its client uses."""
    from huggingface_hub.errors import HfHubHTTPError

    return (*HfHubHTTPError.__bases__, OSError)


# A limit on replies.

MAX_REPLY_BYTES = 32_000_000  # of one reply, streamed or not
UNCOMPRESSED_HEADERS = {"Accept-Encoding": "identity"}  # headers of a request whose reply is limited


class UnreadableReply(ValueError):
    """A reply is larger than the limit, or compressed although that was not asked for: 3 MB can become 3 GB."""


def limit_reply(response: Any) -> None:
    """Limit the body of an unread response: the hook "response" of a Client. Reading it raises UnreadableReply.

    All ways to read a response go through its method iter_raw. A compressed response is refused at once.
    """
    _require_uncompressed(response)
    read = response.iter_raw

    def read_limited(chunk_size: int | None = None) -> Iterator[bytes]:
        received = 0
        for data in read(chunk_size):
            received = _count(received, data)
            yield data

    response.iter_raw = read_limited


async def limit_reply_async(response: Any) -> None:
    """Limit the body likewise: the hook "response" of an AsyncClient."""
    _require_uncompressed(response)
    read = response.aiter_raw

    async def read_limited(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        received = 0
        async for data in read(chunk_size):
            received = _count(received, data)
            yield data

    response.aiter_raw = read_limited


def _require_uncompressed(response: Any) -> None:
    if response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise UnreadableReply("its reply is compressed, which was not asked for")


def _count(received: int, data: bytes) -> int:
    """Return the bytes received with these. Raises UnreadableReply."""
    received += len(data)
    if received > MAX_REPLY_BYTES:
        raise UnreadableReply(f"its reply has more than {shown_size(MAX_REPLY_BYTES)}")
    return received


# The client.

NO_KEY = "none"
LONG_WAIT_SECONDS = 3.0  # longer waits are reported
# What no proxy of the environment (HTTP_PROXY) gets to see.
THIS_MACHINE = ("all://127.0.0.1", "all://localhost", "all://[::1]")


def connected(
    url: str | None,
    key: str | None,
    timeout: float,
    retries: int,
    on_event: OnEvent = ignore,
) -> "OpenAI":
    """Return a client of the server at `url` (…/v1; None: OpenAI itself). Nothing is sent yet.

    `timeout`: seconds for one try. After 429, 5xx, a time-out or a lost connection the client tries again, `retries`
    times, unless nothing listens there; `on_event` is then called with a note. Its connections end with it. Replies are
    limited.
    """
    from openai import DefaultHttpxClient, OpenAI, Timeout

    observer = _RequestObserver(url or "https://api.openai.com/v1", retries, on_event)
    limits = Timeout(timeout, connect=min(timeout, CONNECT_SECONDS))
    connections = DefaultHttpxClient(
        timeout=limits,
        headers=UNCOMPRESSED_HEADERS,
        event_hooks={"request": [observer.observe], "response": [observer.report_wait, limit_reply]},
        mounts=dict.fromkeys(THIS_MACHINE),
    )
    client = OpenAI(
        base_url=url, api_key=key or NO_KEY, timeout=limits, max_retries=retries, http_client=connections
    )
    weakref.finalize(client, connections.close)
    return client


class _RequestObserver:
    """Reports tries after the first and long waits; ends the tries where nothing listens."""

    def __init__(self, where: str, retries: int, on_event: OnEvent) -> None:
        self._where, self._retries, self._on_event = where, retries, on_event
        self._is_first = True

    def observe(self, request: Any) -> None:
        """Report a try after the first, which the client numbers in a header. Before it, and before the client's very
        first request, require that something listens: the client tries again after any error but its own."""
        from openai import APIConnectionError

        again = request.headers.get("x-stainless-retry-count", "0")
        if self._retries and (self._is_first or again != "0"):
            try:
                require_listener(self._where)
            except ConnectionRefusedError as error:
                raise APIConnectionError(request=request) from error
        self._is_first = False
        if again != "0":
            self._on_event(note(f"retrying {self._where} ({again} of {self._retries})"))

    def report_wait(self, response: "httpx.Response") -> None:
        wait = response.headers.get("retry-after", "")
        if response.is_error and wait.isdigit() and LONG_WAIT_SECONDS < int(wait) <= 60:
            self._on_event(
                note(f"{self._where} is busy (status {response.status_code}): waiting {wait} s, as requested")
            )
