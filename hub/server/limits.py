"""Limits on what one client may use: requests, attempts to log in, connections, bytes and time without a byte.

Counts of requests are stored in a small file that all workers of a server share; servers on several hosts count
separately. A bucket is one number: the time at which it will be full (the generic cell rate algorithm).
"""

import asyncio
import fcntl
import hashlib
import ipaddress
import math
import mmap
import os
import re
import secrets
import struct
import threading
import time
from asyncio import BaseTransport, TimerHandle
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias
from urllib.parse import parse_qsl

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kcard.hub.accounts import fold_name
from kcard.hub.errors import TooManyRequests
from kcard.hub.server.logs import PROBES

WINDOW_SECONDS = 300  # in which an empty bucket fills
SALT_BYTES = 16  # random, at the start of the file, so that nobody can choose keys that share a bucket
BUCKET = struct.Struct("=d")  # when it will be full
# Two keys of a million share a bucket by chance; most pages of the file are never written.
BUCKETS = 1 << 20
COUNTS_BYTES = SALT_BYTES + BUCKETS * BUCKET.size


@dataclass(frozen=True)
class TakeResult:
    """The result of taking tokens: whether the bucket had enough, and how many are left.

    wait  seconds until it has enough; if it had, until it is full
    """

    allowed: bool
    left: int
    wait: float


def create_counts(path: Path) -> None:
    """Create the file that the workers share, with full buckets."""
    path.write_bytes(secrets.token_bytes(SALT_BYTES))
    os.truncate(path, COUNTS_BYTES)


class Buckets:
    """Buckets by key that fill at `rate` tokens a minute and hold what they get in WINDOW_SECONDS. Thread-safe.

    `counts` is a file from `create_counts`; None: the buckets of this process only. `clock` must be the same in all
    processes.
    """

    def __init__(
        self, rate: int, counts: str | Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.size = rate * WINDOW_SECONDS // 60
        self._seconds_per_token, self._clock = 60 / rate, clock
        self._lock = threading.Lock()
        self._file = None if counts is None else os.open(counts, os.O_RDWR | os.O_CLOEXEC)
        self._map = mmap.mmap(-1 if self._file is None else self._file, COUNTS_BYTES)
        if self._file is None:
            self._map[:SALT_BYTES] = secrets.token_bytes(SALT_BYTES)
        self._salt = bytes(self._map[:SALT_BYTES])

    def take(self, key: str, count: int = 1) -> TakeResult:
        """Take tokens, all or none; at most as many as a full bucket holds."""
        digest = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8, key=self._salt).digest())
        place = SALT_BYTES + digest % BUCKETS * BUCKET.size
        with self._lock_bucket(place):
            now = self._clock()
            missing = max(BUCKET.unpack_from(self._map, place)[0] - now, 0)  # seconds until it is full
            after = missing + min(count, self.size) * self._seconds_per_token
            if after > WINDOW_SECONDS:
                left = int((WINDOW_SECONDS - missing) / self._seconds_per_token)
                return TakeResult(False, left, after - WINDOW_SECONDS)
            BUCKET.pack_into(self._map, place, now + after)
        return TakeResult(True, int((WINDOW_SECONDS - after) / self._seconds_per_token), after)

    def require(self, key: str, what: str) -> None:
        """Take a token. Raises TooManyRequests; `what` names the requests in its message."""
        taken = self.take(key)
        if not taken.allowed:
            wait = math.ceil(taken.wait)
            raise TooManyRequests(f"too many {what}: try again in {wait} s", seconds=wait)

    @contextmanager
    def _lock_bucket(self, place: int) -> Iterator[None]:
        """Lock a bucket. The kernel releases the lock of a process that is killed."""
        with self._lock:
            if self._file is None:
                yield
                return
            fcntl.lockf(self._file, fcntl.LOCK_EX, BUCKET.size, place)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, BUCKET.size, place)


DOWNLOAD_COST, USUAL_COST, HIGH_COST = 1, 4, 20  # about 3 ms of processor time each
# Uploads and downloads of files. Other paths of /api may contain the same words.
FILE_PATHS = re.compile(r"/(?!api/)(?:datasets/)?[^/]+/[^/]+/(?:resolve|raw)/.|/lfs/")
# Descriptions of many repositories or files, and texts that are parsed.
COSTLY_PATHS = re.compile(r"/api/validate-yaml|/api/[^/]+/[^/]+/[^/]+/paths-info/|/api/(?!whoami)[^/]+\Z")
COSTLY_PARAMETERS = frozenset(["cardData", "config", "expand", "full", "search", "q", "tag"])


def request_cost(path: str, query: bytes) -> int:
    """Return how many downloads a request counts for in the rate limit; `path` is the undecoded path."""
    if FILE_PATHS.match(path):
        return DOWNLOAD_COST
    names = {name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)}
    if COSTLY_PATHS.match(path) or names & COSTLY_PARAMETERS:
        return HIGH_COST
    return USUAL_COST


MAX_REMEMBERED_LOGINS = 100_000
MAX_REQUESTS_OF_CLIENT = 100  # that a worker answers at a time: a slow download holds a megabyte
IPV6_PREFIX = 64  # that one customer's network shares


class RateLimit:
    """ASGI middleware: 429 with Retry-After for too many requests, in five minutes or at a time; probes are exempt.

    rate     downloads a minute; other requests cost more
    counts   the file that the workers share; None: this process counts alone
    own      whether requests from this machine count too

    A request counts for its account only after this worker has seen the token accepted, and for its address before
    that, so that made-up tokens don't evade the limit.
    """

    def __init__(self, app: ASGIApp, rate: int, counts: str | None = None, own: bool = False) -> None:
        self._app, self._own = app, own
        self._buckets = Buckets(rate, counts)
        self._policy = f'"fixed window";"requests";q={self._buckets.size};w={WINDOW_SECONDS}'
        self._accounts: OrderedDict[bytes, str] = OrderedDict()  # by the digest of their Authorization
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES or (is_this_machine(scope) and not self._own):
            await self._app(scope, receive, send)
            return
        # Take tokens from the bucket of the account, or of the address if the account is not known yet.
        header = Headers(scope=scope).get("authorization")
        login = b"" if header is None else hashlib.sha256(header.encode()).digest()
        key = f"address {network_of(scope)}"
        if login in self._accounts:
            key = f"account {self._accounts[login]}"
        taken = TakeResult(False, self._buckets.size, 1)
        if self._running[key] < MAX_REQUESTS_OF_CLIENT:
            taken = self._buckets.take(key, request_cost(scope["path"], scope.get("query_string", b"")))

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                if login and taken.allowed:
                    self._remember(login, scope.get("state", {}).get("account"))
                # The headers by which the Hugging Face clients wait (draft-ietf-httpapi-ratelimit-headers).
                headers = MutableHeaders(scope=message)
                left = taken.left if taken.allowed else 0
                headers["RateLimit"] = f'"requests";r={left};t={max(1, math.ceil(taken.wait))}'
                headers["RateLimit-Policy"] = self._policy
            await send(message)

        # Refuse the request, or pass it on.
        if not taken.allowed:
            from kcard.hub.server.web.render import make_error_response

            who, wait = key.partition(" ")[0], math.ceil(taken.wait)
            error = TooManyRequests(f"too many requests from this {who}: try again in {wait} s", seconds=wait)
            await make_error_response(Request(scope), error)(scope, receive, send_with_limits)
            return
        self._running[key] += 1
        try:
            await self._app(scope, receive, send_with_limits)
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]

    def _remember(self, login: bytes, account: str | None) -> None:
        """Remember whose an Authorization header is; None: nobody's."""
        self._accounts.pop(login, None)
        if account is not None:
            self._accounts[login] = account
        if len(self._accounts) > MAX_REMEMBERED_LOGINS:
            self._accounts.popitem(last=False)


# Attempts a minute to log in; five times as many at once.
OF_ADDRESS, OF_ACCOUNT_AT_ADDRESS, OF_ACCOUNT = 6, 2, 12


class LoginLimit:
    """Limits attempts to log in: by address, by account from an address, and by account.

    The last limit is wider, so that others can't easily lock somebody out. Names count even if there is no such
    account. `counts`: the file that the workers share, if they do.
    """

    def __init__(self, counts: str | None = None) -> None:
        self._addresses = Buckets(OF_ADDRESS, counts)
        self._pairs = Buckets(OF_ACCOUNT_AT_ADDRESS, counts)
        self._accounts = Buckets(OF_ACCOUNT, counts)

    def take(self, scope: Scope, name: str) -> None:
        """Count an attempt; if one limit refuses it, it does not count for the next. Raises TooManyRequests."""
        address, account = network_of(scope), fold_name(name)[:100]
        self._addresses.require(f"login from {address}", "attempts to log in")
        self._pairs.require(f"login from {address} as {account}", "attempts to log in")
        self._accounts.require(f"login as {account}", "attempts to log in")


Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_this_machine(scope: Scope) -> bool:
    """Return whether the request comes from the server's own machine."""
    address = _address(scope)
    return address is not None and address.is_loopback


def network_of(scope: Scope) -> str:
    """Return the client's address; for IPv6 its network, since clients can use any address in it."""
    address = _address(scope)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))
    return str(address)


def _address(scope: Scope) -> Address | None:
    """Return the client's address; None if unknown. A dual-stack socket shows IPv4 clients as ::ffff:192.0.2.1."""
    try:
        address = ipaddress.ip_address(scope["client"][0])
    except (ValueError, TypeError, KeyError):
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_trusted(address: Address | None, proxies: str | list[str] | None) -> bool:
    """Return whether an address is one of these proxies: addresses and networks, comma-separated or listed; *: all."""
    names = proxies.split(",") if isinstance(proxies, str) else proxies or []
    for name in names:
        if name.strip() == "*":
            return True
        with suppress(ValueError):  # a name that is no address
            if address is not None and address in ipaddress.ip_network(name.strip(), strict=False):
                return True
    return False


MAX_BODY_BYTES = 1 << 20  # of JSON and forms, which are read into memory
IDLE_SECONDS = 60.0
LIFTED_LIMIT_KEY = "kcard.body_limit"


class BodyLimit:
    """ASGI middleware that limits the size of request bodies, and how long a transfer may stall.

    It answers 413 to a body that has, or declares, more than `max_bytes`, and 408 if no byte arrives for `seconds`; a
    response that stalls for as long is dropped. Slow clients that make progress are not limited. Endpoints that accept
    larger bodies, or stream them to disk and count their bytes, call `lift_body_limit`.
    """

    def __init__(self, app: ASGIApp, max_bytes: int = MAX_BODY_BYTES, seconds: float = IDLE_SECONDS) -> None:
        self._app, self._max_bytes, self._seconds = app, max_bytes, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        size = int(declared) if declared.isdecimal() and declared.isascii() else 0
        received, complete, answered, stalled = 0, False, False, False

        async def receive_limited() -> Message:
            nonlocal received, complete
            limit = scope.get(LIFTED_LIMIT_KEY, self._max_bytes)
            if max(size, received) <= limit:
                # Of a complete body, the application only waits for the client to disconnect.
                try:
                    async with asyncio.timeout(None if complete else self._seconds):
                        message = await receive()
                except TimeoutError:
                    why = f"request timed out: no data received for {self._seconds:g} s"
                    raise _refusal(408, why) from None
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if max(size, received) <= limit:
                    return message
            if answered:
                return {"type": "http.disconnect"}
            raise _refusal(413, f"request body too large: the limit is {limit} bytes")

        async def send_timed(message: Message) -> None:
            nonlocal answered, stalled
            answered = True
            try:
                async with asyncio.timeout(self._seconds):
                    await send(message)
            except TimeoutError:
                stalled = True
                raise OSError(f"response timed out: no data accepted for {self._seconds:g} s") from None

        try:
            await self._app(scope, receive_limited, send_timed)
        except Exception:  # the OSError above, however the layers between have wrapped it
            if not stalled:
                raise


def lift_body_limit(request: Request, max_bytes: float = math.inf) -> None:
    """Change the limit for this request. If there is none, the endpoint must count the bytes and write them to disk."""
    request.scope[LIFTED_LIMIT_KEY] = max_bytes


def _refusal(status: int, why: str) -> HTTPException:
    # FastAPI passes on an HTTPException; any other becomes a generic error about the body.
    return HTTPException(status, why, headers={"X-Error-Message": why, "Connection": "close"})


MAX_CONNECTIONS_OF_ADDRESS = 200  # to one worker at a time; each takes a file descriptor
TOO_MANY_CONNECTIONS = b"too many connections from this address: close some, or wait\n"
HEADER_SECONDS = 20.0
MAX_HEADER_BYTES = 64 << 10


class Connection(HttpToolsProtocol):
    """An HTTP/1.1 connection that is closed if the next headers are not complete in time, or too large; at once, with
    429, if its address has MAX_CONNECTIONS_OF_ADDRESS already and is not that of a trusted proxy.

    For a new connection the time starts at once, for one in use with the first byte of the next request; until then
    uvicorn's keep-alive timeout applies. The application itself can't do this: it only sees complete headers.
    """

    _open: ClassVar[Counter[str]] = Counter()  # connections of this process by address

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._counted: str | None = None  # the address that this connection counts for
        self._timer: TimerHandle | None = None
        self._received = 0  # bytes since the headers began

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        scope = {"client": self.client}
        if not is_trusted(_address(scope), self.config.forwarded_allow_ips):
            self._counted = network_of(scope)
            self._open[self._counted] += 1
            if self._open[self._counted] > MAX_CONNECTIONS_OF_ADDRESS:
                head = f"HTTP/1.1 429 Too Many Requests\r\nContent-Length: {len(TOO_MANY_CONNECTIONS)}\r\n"
                self.transport.write(head.encode() + b"Connection: close\r\n\r\n" + TOO_MANY_CONNECTIONS)
                self.transport.close()
                return
        self._start()

    def data_received(self, data: bytes) -> None:
        if self._timer is None and not self._is_busy():
            self._start()
        self._received += len(data)
        super().data_received(data)
        if self._timer is not None and self._received > MAX_HEADER_BYTES:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start()

    def on_headers_complete(self) -> None:
        self._stop()
        # They may have come in one piece, with a body.
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADER_BYTES:
            raise ValueError(f"headers of more than {MAX_HEADER_BYTES} bytes")  # the parser makes it a 400
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        if self._counted is not None:
            self._open[self._counted] -= 1
            if not self._open[self._counted]:
                del self._open[self._counted]
            self._counted = None
        super().connection_lost(exc)

    def _start(self) -> None:
        self._stop()
        self._received = 0
        self._timer = self.loop.call_later(HEADER_SECONDS, self._close_unless_busy)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_unless_busy(self) -> None:
        if self._is_busy():  # a request before this one, during which nothing is read
            self._start()
        else:
            self.transport.close()

    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete
