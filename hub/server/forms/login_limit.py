"""Limits attempts to log in, in all workers together: by address, by account from an address, and by account.

The last limit is wider, so that others can't easily lock somebody out. Names count whether the account exists or not.
"""

import math
from pathlib import Path

from starlette.types import Scope

from kcard.hub.accounts.names import folded
from kcard.hub.refusals import TooMany
from kcard.hub.server.middleware.rate_limit import network
from kcard.hub.server.middleware.shared_buckets import SharedBuckets

__all__ = ["LoginLimit"]

# Attempts a minute; five times as many at once.
OF_ADDRESS, OF_ACCOUNT_AT_ADDRESS, OF_ACCOUNT = 6, 2, 12


class LoginLimit:
    """Raises TooMany for attempts beyond a limit. `counts`: the file that the workers share, if they do."""

    def __init__(self, counts: str | None = None) -> None:
        path = None if counts is None else Path(counts)
        self._addresses = SharedBuckets(OF_ADDRESS, path)
        self._pairs = SharedBuckets(OF_ACCOUNT_AT_ADDRESS, path)
        self._accounts = SharedBuckets(OF_ACCOUNT, path)

    def take(self, scope: Scope, name: str) -> None:
        """Count an attempt. What one limit refuses does not count for the next."""
        address, account = network(scope), folded(name)[:100]
        for buckets, key in (
            (self._addresses, f"login from {address}"),
            (self._pairs, f"login from {address} as {account}"),
            (self._accounts, f"login as {account}"),
        ):
            taken = buckets.take(key)
            if not taken.allowed:
                wait = math.ceil(taken.wait)
                raise TooMany(f"too many attempts to log in: try again in {wait} s", seconds=wait)
