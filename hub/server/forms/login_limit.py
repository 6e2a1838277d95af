"""Limits attempts to log in, in each worker: by address, by account from an address, and by account.

The last limit is wider, so that others can't easily lock somebody out. Names count whether the account exists or not.
"""

from starlette.types import Scope

from kcard.hub.accounts.names import folded
from kcard.hub.refusals import TooMany
from kcard.hub.server.middleware.rate_limit import Buckets, network

__all__ = ["LoginLimit"]

# Attempts a minute.
OF_ADDRESS, OF_ACCOUNT_AT_ADDRESS, OF_ACCOUNT = 30, 10, 60


class LoginLimit:
    """Raises TooMany for attempts beyond a limit."""

    def __init__(self) -> None:
        self._addresses = Buckets(OF_ADDRESS)
        self._pairs = Buckets(OF_ACCOUNT_AT_ADDRESS)
        self._accounts = Buckets(OF_ACCOUNT)

    def take(self, scope: Scope, name: str) -> None:
        """Count an attempt. What one limit refuses does not count for the next."""
        address, account = network(scope), folded(name)[:100]
        wait = (
            self._addresses.take(address)
            or self._pairs.take(f"{address} {account}")
            or self._accounts.take(account)
        )
        if wait:
            raise TooMany(f"too many attempts to log in: try again in {max(1, round(wait))} s", seconds=wait)
