"""Rate limit: a token bucket for each account or address, in every worker.

A bucket holds a minute's worth of requests. A request counts for its account only once this worker has seen the token
accepted, and for its address before that: made-up tokens don't evade the limit.
"""

import hashlib
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kcard.hub.refusals import TooMany
from kcard.hub.server.middleware.instrumentation import QUIET
from kcard.hub.server.page.refusals import refused

__all__ = ["Buckets", "RateLimit", "is_this_machine"]

MOST_KEYS = 100_000
NETWORK = 64  # prefix of an IPv6 address that one customer's network shares


class Buckets:
    """A bucket for each key, refilled at `rate` a minute; the least recently used are dropped."""

    def __init__(self, rate: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> float:
        """Take one token: 0, or the seconds until the next one if the bucket is empty."""
        now = self._clock()
        left, at = self._left.pop(key, (float(self._rate), now))
        left = min(self._rate, left + (now - at) * self._rate / 60)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / self._rate
        self._left[key] = (left if wait else left - 1, now)
        if len(self._left) > MOST_KEYS:
            self._left.popitem(last=False)
        return wait


class RateLimit:
    """ASGI middleware: 429 with Retry-After for more than `rate` requests a minute, except probes."""

    def __init__(self, app: ASGIApp, rate: int) -> None:
        self._app, self._buckets = app, Buckets(rate)
        self._accounts: OrderedDict[bytes, str] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in QUIET:
            await self._app(scope, receive, send)
            return
        login = _login(scope)
        account = self._accounts.get(login) if login else None
        key = f"account {account}" if account else f"address {_network(scope)}"
        if wait := self._buckets.take(key):
            error = TooMany(
                f"too many requests from this {key.partition(' ')[0]}: try again later", seconds=wait
            )
            await refused(Request(scope), error)(scope, receive, send)
            return

        async def learned(message: Message) -> None:
            if login and message["type"] == "http.response.start":
                self._learn(login, scope.get("state", {}).get("account"))
            await send(message)

        await self._app(scope, receive, learned)

    def _learn(self, login: bytes, account: str | None) -> None:
        self._accounts.pop(login, None)
        if account is not None:
            self._accounts[login] = account
        if len(self._accounts) > MOST_KEYS:
            self._accounts.popitem(last=False)


def is_this_machine(scope: Scope) -> bool:
    """Whether the request comes from the server's own machine."""
    client = scope.get("client")
    try:
        return client is not None and ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


def _login(scope: Scope) -> bytes | None:
    header = Headers(scope=scope).get("authorization")
    return None if header is None else hashlib.sha256(header.encode()).digest()


def _network(scope: Scope) -> str:
    """The client's address; for IPv6 its network, since clients can use any address in it."""
    client = scope.get("client")
    try:
        address = ipaddress.ip_address(client[0]) if client else None
    except ValueError:
        address = None
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, NETWORK), strict=False))
    return str(address)
