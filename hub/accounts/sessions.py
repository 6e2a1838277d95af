"""Sessions of browsers.

A browser logs in with a token and gets a random id (256 bits), of which only the sha256 is stored. A session may do
what its token may. It ends with the token, while the account is disabled, after IDLE without use, and after LONGEST.
"""

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, insert, or_, select, update

from kcard.hub.accounts.events import write
from kcard.hub.accounts.identity import Identity
from kcard.hub.accounts.names import folded
from kcard.hub.accounts.tokens import Tokens, digest, identity, owned
from kcard.hub.records.account_tables import sessions, tokens
from kcard.hub.records.database import Database
from kcard.hub.records.utc import now, utc
from kcard.hub.refusals import Unknown

__all__ = ["LONGEST", "Session", "Sessions"]

IDLE, LONGEST = timedelta(days=7), timedelta(days=30)
# The last use is recorded this exactly, so that few reads write.
PRECISION = timedelta(hours=1)
RANDOM_BYTES = 32
LONGEST_ID = 100
REFUSED = "unknown name or token: check both, and whether the token was revoked"


@dataclass(frozen=True)
class Session:
    """A session. `until`: when its token expires; None: never."""

    identity: Identity
    until: datetime | None


class Sessions:
    """The sessions of a hub."""

    def __init__(self, database: Database, known: Tokens) -> None:
        self._database, self._tokens = database, known

    def open(self, name: str, token: str) -> str:
        """Log in; returns the id of a new session.

        Raises Unknown, identically for an unknown account and for a token of another one. The token is looked up
        whatever the name, so that the time tells neither whether the account exists.
        """
        who = self._tokens.identify(token)
        if who is None or folded(who.name) != folded(name):
            raise Unknown(REFUSED)
        id_, at = secrets.token_urlsafe(RANDOM_BYTES), now()
        of_token = select(tokens.c.id).where(tokens.c.digest == digest(token))
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(_over(at)))
            token_id = connection.scalar(of_token)
            if token_id is None:  # revoked meanwhile
                raise Unknown(REFUSED)
            row = {"token_id": token_id, "digest": digest(id_), "opened": at, "used": at}
            connection.execute(insert(sessions).values(row))
            write(connection, who.name, "session.opened", who.name, token=who.token_name)
        return id_

    def find(self, id_: str) -> Session | None:
        """The session of an id, which this counts as used; None if there is none, or it is over."""
        if not id_ or len(id_) > LONGEST_ID or not id_.isascii():
            return None
        query = owned().add_columns(sessions.c.id.label("session_id"), sessions.c.used)
        query = query.join(sessions, sessions.c.token_id == tokens.c.id)
        at = now()
        with self._database.read() as connection:
            here = query.where(sessions.c.digest == digest(id_), ~_over(at))
            row = connection.execute(here).one_or_none()
            if row is None:
                return None
            try:
                found = Session(identity(connection, row), None if row.expires is None else utc(row.expires))
            except Unknown:
                return None
        self._record_use(row, at)
        return found

    def close(self, id_: str) -> None:
        """Log out, if there is such a session."""
        with self._database.write() as connection:
            connection.execute(delete(sessions).where(sessions.c.digest == digest(id_)))

    def close_all(self, account_id: int) -> int:
        """Close every session of an account; returns how many there were."""
        theirs = select(tokens.c.id).where(tokens.c.account_id == account_id)
        with self._database.write() as connection:
            return connection.execute(delete(sessions).where(sessions.c.token_id.in_(theirs))).rowcount

    def _record_use(self, row: Row[Any], at: datetime) -> None:
        if at - utc(row.used) < PRECISION:
            return
        with self._database.write() as connection:
            connection.execute(update(sessions).where(sessions.c.id == row.session_id).values(used=at))


def _over(at: datetime) -> Any:
    return or_(sessions.c.used <= at - IDLE, sessions.c.opened <= at - LONGEST)
