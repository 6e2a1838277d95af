"""Limits on what one client may use: requests, bytes, time, threads. Every limit is on by default.

    requests  RateLimit: a token bucket for each account or address; LoginLimit: attempts to log in
    connections  Connection: of an address at a time
    bytes     BodyLimit: of a request's body; Connection: of its headers
    time      BodyLimit: without a byte sent or received; Connection: until the headers are complete
    work      EXPENSIVE: only a few expensive requests run at a time; limit_writes and run_in_write_thread: likewise
              for writes; lock_account: slow requests of one account run one after the other

Buckets are stored in a small file that all workers of a server share; servers on several hosts count separately. A
bucket is one number: the time at which it will be full (the generic cell rate algorithm). A key may use eight slots of
the file; if all are taken, it replaces the fullest bucket, so that a flood of new keys does not refill the buckets of
clients that have spent their tokens.
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
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar
from urllib.parse import parse_qsl
from weakref import WeakValueDictionary

import anyio
from anyio import CancelScope, CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi import Depends, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kcard.errors import Unavailable
from kcard.hub.accounts import fold_name
from kcard.hub.errors import Invalid, TooManyRequests

T = TypeVar("T")

# --- Requests --------------------------------------------------------------------------------------------------------

PROBES = ("/healthz", "/readyz", "/metrics")  # which are neither limited nor logged
WINDOW = 300  # seconds in which an empty bucket fills
SALT = 16  # random bytes at the start of the file, so that nobody can choose keys that share a slot
SETS, WAYS = 8192, 8
SLOTS = struct.Struct("=" + "Qd" * WAYS)  # digest of the key, and when its bucket will be full
COUNTS_SIZE = SALT + SETS * SLOTS.size  # a megabyte


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
    path.write_bytes(secrets.token_bytes(SALT) + bytes(COUNTS_SIZE - SALT))


class Buckets:
    """Buckets by key that fill at `rate` tokens a minute and hold what they get in WINDOW seconds. Thread-safe.

    `counts` is a file from `create_counts`; None: the buckets of this process only. `clock` must be the same in all
    processes.
    """

    def __init__(
        self, rate: int, counts: str | Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.size = rate * WINDOW // 60
        self._each, self._clock = 60 / rate, clock
        self._lock = threading.Lock()
        self._file = None if counts is None else os.open(counts, os.O_RDWR | os.O_CLOEXEC)
        self._map = mmap.mmap(-1 if self._file is None else self._file, COUNTS_SIZE)
        if self._file is None:
            self._map[:SALT] = secrets.token_bytes(SALT)
        self._salt = bytes(self._map[:SALT])

    def take(self, key: str, count: int = 1) -> TakeResult:
        """Take tokens, all or none; at most as many as a full bucket holds."""
        digest = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8, key=self._salt).digest())
        start = SALT + digest % SETS * SLOTS.size
        with self._lock_slots(start):
            now = self._clock()
            slots = list(SLOTS.unpack_from(self._map, start))
            keys = range(0, 2 * WAYS, 2)
            slot = next((i for i in keys if slots[i] == digest), None)
            if slot is None:
                slot = min(keys, key=lambda i: slots[i + 1])
            full = max(slots[slot + 1], now) if slots[slot] == digest else now
            later = full + min(count, self.size) * self._each
            if later - now > WINDOW:
                return TakeResult(False, int((WINDOW - full + now) / self._each), later - now - WINDOW)
            slots[slot : slot + 2] = digest, later
            SLOTS.pack_into(self._map, start, *slots)
        return TakeResult(True, int((WINDOW - later + now) / self._each), later - now)

    def require(self, key: str, what: str) -> None:
        """Take a token. Raises TooManyRequests; `what` names the requests in its message."""
        taken = self.take(key)
        if not taken.allowed:
            wait = math.ceil(taken.wait)
            raise TooManyRequests(f"too many {what}: try again in {wait} s", seconds=wait)

    @contextmanager
    def _lock_slots(self, start: int) -> Iterator[None]:
        """Lock the slots of a key. The kernel releases the lock of a process that is killed."""
        with self._lock:
            if self._file is None:
                yield
                return
            fcntl.lockf(self._file, fcntl.LOCK_EX, SLOTS.size, start)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN, SLOTS.size, start)


DOWNLOAD, USUAL, DEAR = 1, 4, 20  # about 3 ms of processor time each
# Uploads and downloads of files. Other paths of /api may contain the same words.
FILES = re.compile(r"/(?!api/)(?:datasets/)?[^/]+/[^/]+/(?:resolve|raw)/.|/lfs/")
# Descriptions of many repositories or files, and texts that are parsed.
DEAR_PATHS = re.compile(r"/api/validate-yaml|/api/[^/]+/[^/]+/[^/]+/paths-info/|/api/(?!whoami)[^/]+\Z")
DEAR_PARAMETERS = frozenset(["cardData", "config", "expand", "full", "search", "q", "tag"])


def request_cost(path: str, query: bytes) -> int:
    """Return how many downloads a request counts for in the rate limit; `path` is the undecoded path."""
    if FILES.match(path):
        return DOWNLOAD
    names = {name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)}
    return DEAR if DEAR_PATHS.match(path) or names & DEAR_PARAMETERS else USUAL


MOST_KEYS = 100_000
MOST_AT_ONCE = 100  # requests of one client that a worker answers at once: a slow download holds a megabyte
NETWORK = 64  # prefix of an IPv6 address that one customer's network shares


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
        self._policy = f'"fixed window";"requests";q={self._buckets.size};w={WINDOW}'
        self._accounts: OrderedDict[bytes, str] = OrderedDict()  # by the digest of their Authorization
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES or (is_this_machine(scope) and not self._own):
            await self._app(scope, receive, send)
            return
        # Take tokens from the bucket of the account, or of the address if the account is not known yet.
        header = Headers(scope=scope).get("authorization")
        login = None if header is None else hashlib.sha256(header.encode()).digest()
        account = self._accounts.get(login) if login else None
        key = f"account {account}" if account else f"address {network_of(scope)}"
        taken = TakeResult(False, self._buckets.size, 1)
        if self._running[key] < MOST_AT_ONCE:
            taken = self._buckets.take(key, request_cost(scope["path"], scope.get("query_string", b"")))

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                if login and taken.allowed:
                    self._accounts.pop(login, None)
                    owner = scope.get("state", {}).get("account")
                    if owner is not None:
                        self._accounts[login] = owner
                    if len(self._accounts) > MOST_KEYS:
                        self._accounts.popitem(last=False)
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


# Attempts a minute to log in; five times as many at once.
OF_ADDRESS, OF_ACCOUNT_AT_ADDRESS, OF_ACCOUNT = 6, 2, 12


class LoginLimit:
    """Limits attempts to log in: by address, by account from an address, and by account.

    The last limit is wider, so that others can't easily lock somebody out. Names count even if there is no such
    account. `counts`: the file that the workers share, if they do.
    """

    def __init__(self, counts: str | None = None) -> None:
        self._addresses, self._pairs, self._accounts = (
            Buckets(rate, counts) for rate in (OF_ADDRESS, OF_ACCOUNT_AT_ADDRESS, OF_ACCOUNT)
        )

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
        return str(ipaddress.ip_network((address, NETWORK), strict=False))
    return str(address)


def _address(scope: Scope) -> Address | None:
    """Return the client's address; None if unknown. A dual-stack socket shows IPv4 clients as ::ffff:192.0.2.1."""
    client = scope.get("client")
    try:
        address = ipaddress.ip_address(client[0]) if client else None
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


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


# --- Bytes and time --------------------------------------------------------------------------------------------------

LARGEST_BODY = 1 << 20  # bytes of JSON and forms, which are read into memory
IDLE_SECONDS = 60.0
LIFTED = "kcard.body_limit"


class BodyLimit:
    """ASGI middleware that limits the size of request bodies, and how long a transfer may stall.

    It answers 413 to a body that has, or declares, more than `largest` bytes, and 408 if no byte arrives for `seconds`;
    a response that stalls for as long is dropped. Slow clients that make progress are not limited. Endpoints that
    accept larger bodies, or stream them to disk and count their bytes, call `lift_body_limit`.
    """

    def __init__(self, app: ASGIApp, largest: int = LARGEST_BODY, seconds: float = IDLE_SECONDS) -> None:
        self._app, self._largest, self._seconds = app, largest, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        size = int(length) if length.isdigit() else 0  # what is declared, until more is received
        received, complete, answered, stalled = 0, False, False, False

        async def receive_limited() -> Message:
            nonlocal received, complete
            largest = scope.get(LIFTED, self._largest)
            if max(size, received) <= largest:
                try:
                    # Of a complete body, the application only waits for the client to disconnect.
                    async with asyncio.timeout(None if complete else self._seconds):
                        message = await receive()
                except TimeoutError:
                    raise _refusal(
                        408, f"request timed out: no data received for {self._seconds:g} s"
                    ) from None
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if max(size, received) <= largest:
                    return message
            if answered:
                return {"type": "http.disconnect"}
            raise _refusal(413, f"request body too large: the limit is {largest} bytes")

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


def lift_body_limit(request: Request, largest: float = math.inf) -> None:
    """Change the limit for this request. If there is none, the endpoint must count the bytes and write them to disk."""
    request.scope[LIFTED] = largest


def _refusal(status: int, why: str) -> HTTPException:
    # FastAPI passes on an HTTPException; any other becomes a generic error about the body.
    return HTTPException(status, why, headers={"X-Error-Message": why, "Connection": "close"})


MAX_CONNECTIONS_OF_ADDRESS = 200  # to one worker at a time; each takes a file descriptor
TOO_MANY_CONNECTIONS = b"too many connections from this address: close some, or wait\n"
HEADER_SECONDS = 20.0
LARGEST_HEADERS = 64 << 10  # bytes


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
        self._size = 0  # of the parsed headers

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
        if self._timer is not None and self._received > LARGEST_HEADERS:
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = 0
        self._start()

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name, value, b": \r\n")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        if self._counted is not None:
            self._open[self._counted] -= 1
            if not self._open[self._counted]:
                del self._open[self._counted]
            self._counted = None
        super().connection_lost(exc)

    def _count(self, *parts: bytes) -> None:
        """Count parsed bytes: complete headers may arrive in one piece, followed by a body."""
        self._size += sum(map(len, parts))
        if self._size > LARGEST_HEADERS:
            raise ValueError(f"headers of more than {LARGEST_HEADERS} bytes")  # the parser makes it a 400

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


# --- Work ------------------------------------------------------------------------------------------------------------

READS, WRITES = 4, 8  # in each worker at a time
WAIT_SECONDS = 30
SAFE = frozenset(["GET", "HEAD", "OPTIONS"])
_limiters: RunVar[dict[str, CapacityLimiter]] = RunVar("kcard.limiters")
_accounts: RunVar["WeakValueDictionary[int, asyncio.Lock]"] = RunVar("kcard.accounts")


def limiter(what: str, most: int) -> CapacityLimiter:
    """Return the limiter for `most` of these at a time in a worker, made on first use by its event loop."""
    limiters = _limiters.get({})
    _limiters.set(limiters)
    return limiters.setdefault(what, CapacityLimiter(most))


@asynccontextmanager
async def take_turn(what: str, most: int, seconds: float = math.inf) -> AsyncIterator[None]:
    """Wait for a turn without occupying a thread. Raises Unavailable after `seconds`."""
    turns, turn = limiter(what, most), object()
    try:
        with anyio.fail_after(seconds):
            await turns.acquire_on_behalf_of(turn)
    except TimeoutError:
        raise Unavailable(f"too many {what}: no turn within {seconds} s") from None
    try:
        yield
    finally:
        turns.release_on_behalf_of(turn)


async def limit_expensive() -> AsyncIterator[None]:
    async with take_turn("reads", READS):
        yield


# A dependency of routes that need much processor time or memory: only a few run at a time, which bounds their memory;
# the others wait without occupying a thread, so that downloads overtake them. The turn ends before the response is
# sent, so that slow clients delay nobody. It is resolved first: where another dependency reads the request's body,
# which a client may send slowly, declare an ExpensiveTurn as the endpoint's last parameter instead.
EXPENSIVE = Depends(limit_expensive, scope="function")
ExpensiveTurn: TypeAlias = Annotated[None, EXPENSIVE]


async def limit_writes(request: Request) -> AsyncIterator[None]:
    """Limit the writes that run at a time. All endpoints depend on it. Raises Unavailable.

    Writers wait for each other in the database; here they wait without occupying the threads of reads. Coroutines
    receive uploads, and store them `run_in_write_thread`.
    """
    if request.method in SAFE or iscoroutinefunction(request.scope["endpoint"]):
        yield
        return
    async with take_turn("writes", WRITES, WAIT_SECONDS):
        yield


async def run_in_write_thread(work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a function that reads or stores an upload in a thread, as one of the limited writes; return its result."""
    return await to_thread.run_sync(partial(work, *arguments, **named), limiter=limiter("writes", WRITES))


@asynccontextmanager
async def lock_account(account_id: int) -> AsyncIterator[None]:
    """Run one block of the account at a time, in order of arrival: its slow requests delay no other account."""
    locks = _accounts.get(WeakValueDictionary())
    _accounts.set(locks)
    lock = locks.setdefault(account_id, asyncio.Lock())
    async with lock:
        yield


@asynccontextmanager
async def cancel_on_disconnect(request: Request) -> AsyncIterator[None]:
    """Cancel the block when the client disconnects. The request's body must have been received."""

    async def cancel() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    with CancelScope() as scope:
        watching = asyncio.ensure_future(cancel())
        try:
            yield
        finally:
            watching.cancel()
    if scope.cancelled_caught:
        raise Invalid("the client disconnected before the end of the request")
