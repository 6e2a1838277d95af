"""PostgreSQL connections that give up on a server that is silent; they need the extra `postgres`.

A frozen server, or one behind a broken network, still accepts data, so that neither PostgreSQL's own timeouts nor those
of TCP end a request.
"""

from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

__all__ = ["PING_SECONDS", "ImpatientConnection", "is_silence"]

PING_SECONDS = 2.0


class ImpatientConnection(psycopg.Connection[Any]):
    """A connection that is closed if one statement takes more than `patience` seconds."""

    patience: float = PING_SECONDS

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:  # its answer may still come
                self.pgconn.finish()
                raise SilentServer(f"no answer for {self.patience:g} s") from None
            raise


class SilentServer(psycopg.OperationalError):
    """The server did not answer in time."""


def is_silence(error: object) -> bool:
    """Return whether a driver's error means that the server did not answer."""
    return isinstance(error, (SilentServer, psycopg.errors.ConnectionTimeout))
