"""Quarantine: cards below the hub's factuality threshold are visible, but used only if named.

The latest audit of the version that measured factuality decides, unless an administrator released the version after an
appeal. Without an audit, the card's own exam decides: it can quarantine the card but never release it. Unmeasured cards
are not quarantined.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, insert, select

from kcard.errors import HubError
from kcard.hub.accounts.events import write
from kcard.hub.records.database import Database
from kcard.hub.records.tables import settings
from kcard.hub.repositories.exams import checked_share
from kcard.hub.repositories.figures import Reason, quarantine_reason
from kcard.hub.repositories.versions import Version

__all__ = ["Quarantine", "threshold"]

THRESHOLD = "threshold"


def threshold(connection: Connection) -> float | None:
    """The threshold of a hub; None if it has none. Raises HubError for an invalid one."""
    found = connection.scalar(select(settings.c.value).where(settings.c.name == THRESHOLD))
    try:
        return None if found is None else checked_share(float(found))
    except ValueError:
        raise HubError(
            f"invalid threshold {found!r} in the hub: set it again with `kcard hub threshold 0.5` (or off)"
        ) from None


class Quarantine:
    """The threshold of a hub, and the versions below it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def threshold(self) -> float | None:
        """The minimum factuality, in [0, 1], of cards that are used without being named; None (default): no minimum."""
        with self._database.read() as connection:
            return threshold(connection)

    def set(self, threshold: float | None, *, by: str | None = None) -> None:
        """Set the threshold of this hub. Raises UsageError for one outside [0, 1].

        `by`: the account that changes it, for the event log; None: the command line.
        """
        if threshold is not None:
            checked_share(threshold)
        with self._database.write() as connection:
            connection.execute(delete(settings).where(settings.c.name == THRESHOLD))
            if threshold is not None:
                connection.execute(insert(settings).values(name=THRESHOLD, value=f"{threshold:g}"))
            write(connection, by, "quarantine.set", "hub", threshold=threshold)

    def held(self, versions: Sequence[Version]) -> dict[str, Reason]:
        """Why versions are quarantined, by reference; others are omitted. The figures are those of the values."""
        limit = self.threshold if versions else None
        found = {v.reference: quarantine_reason(v.declared, v.verified, limit) for v in versions}
        return {reference: reason for reference, reason in found.items() if reason is not None}
