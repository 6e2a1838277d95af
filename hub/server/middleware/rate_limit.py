"""Rate limit: a token bucket for each account or address, shared by the workers of a server.

A bucket holds five minutes' worth of requests. A request counts for its account only once this worker has seen the
token accepted, and for its address before that: made-up tokens don't evade the limit.
"""

import hashlib
import ipaddress
import math
from collections import Counter, OrderedDict
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.hub.refusals import TooMany
from kcard.hub.server.middleware.instrumentation import QUIET
from kcard.hub.server.middleware.request_cost import cost
from kcard.hub.server.middleware.shared_buckets import WINDOW, SharedBuckets, Taken
from kcard.hub.server.page.refusals import refused

__all__ = ["MOST_AT_ONCE", "RateLimit", "is_this_machine", "network"]

MOST_KEYS = 100_000
MOST_AT_ONCE = 100  # requests of one client that a worker answers at once: a slow download holds a megabyte
NETWORK = 64  # prefix of an IPv6 address that one customer's network shares


class RateLimit:
    """ASGI middleware: 429 with Retry-After for too many requests, in five minutes or at once, except probes.

    rate     downloads a minute; other requests cost more (request_cost.py)
    counts   the file that the workers share, from shared_buckets.create; None: this process counts alone
    own      whether requests from this machine count too
    """

    def __init__(self, app: ASGIApp, rate: int, counts: str | None = None, own: bool = False) -> None:
        self._app, self._own = app, own
        self._buckets = SharedBuckets(rate, None if counts is None else Path(counts))
        self._policy = f'"fixed window";"requests";q={self._buckets.size};w={WINDOW}'
        self._accounts: OrderedDict[bytes, str] = OrderedDict()
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in QUIET or (is_this_machine(scope) and not self._own):
            await self._app(scope, receive, send)
            return
        login = _login(scope)
        account = self._accounts.get(login) if login else None
        key = f"account {account}" if account else f"address {network(scope)}"
        taken = self._take(key, scope)

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                if login and taken.allowed:
                    self._learn(login, scope.get("state", {}).get("account"))
                self._tell(message, taken)
            await send(message)

        if not taken.allowed:
            await refused(Request(scope), _refusal(key, taken))(scope, receive, told)
            return
        self._running[key] += 1
        try:
            await self._app(scope, receive, told)
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]

    def _take(self, key: str, scope: Scope) -> Taken:
        if self._running[key] >= MOST_AT_ONCE:
            return Taken(False, self._buckets.size, 1)
        return self._buckets.take(key, cost(scope["path"], scope.get("query_string", b"")))

    def _tell(self, message: Message, taken: Taken) -> None:
        """Set the headers by which the Hugging Face clients wait (draft-ietf-httpapi-ratelimit-headers)."""
        headers = MutableHeaders(scope=message)
        left = taken.left if taken.allowed else 0
        headers["RateLimit"] = f'"requests";r={left};t={max(1, math.ceil(taken.wait))}'
        headers["RateLimit-Policy"] = self._policy

    def _learn(self, login: bytes, account: str | None) -> None:
        self._accounts.pop(login, None)
        if account is not None:
            self._accounts[login] = account
        if len(self._accounts) > MOST_KEYS:
            self._accounts.popitem(last=False)


def _refusal(key: str, taken: Taken) -> TooMany:
    who, wait = key.partition(" ")[0], math.ceil(taken.wait)
    return TooMany(f"too many requests from this {who}: try again in {wait} s", seconds=wait)


def is_this_machine(scope: Scope) -> bool:
    """Whether the request comes from the server's own machine."""
    address = _address(scope)
    return address is not None and address.is_loopback


def _login(scope: Scope) -> bytes | None:
    header = Headers(scope=scope).get("authorization")
    return None if header is None else hashlib.sha256(header.encode()).digest()


def network(scope: Scope) -> str:
    """The client's address; for IPv6 its network, since clients can use any address in it."""
    address = _address(scope)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, NETWORK), strict=False))
    return str(address)


def _address(scope: Scope) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The client's address; None if unknown. A socket for both families shows IPv4 clients as ::ffff:192.0.2.1."""
    client = scope.get("client")
    try:
        address = ipaddress.ip_address(client[0]) if client else None
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
