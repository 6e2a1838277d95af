"""Quarantine: cards under the hub's threshold of factuality are visible, but used only where they are named.

What decides is the latest audit of the version that measured factuality. Where there is none it is the exam that
came with the card: whoever made the card made that too, so it can hold the card back and never set it free. A card
of which nobody measured factuality is not held back: unknown is not zero.
"""

from collections.abc import Sequence

from sqlalchemy import delete, insert, select

from kcard.errors import HubError
from kcard.faults import reach
from kcard.hub.accounts.events import write
from kcard.hub.records.database import Database
from kcard.hub.records.tables import settings
from kcard.hub.repositories.audits import Audits
from kcard.hub.repositories.exams import checked_share
from kcard.hub.repositories.versions import Version

__all__ = ["Quarantine"]

THRESHOLD = "threshold"


class Quarantine:
    """The threshold of a hub, and which versions lie under it."""

    def __init__(self, database: Database, audits: Audits) -> None:
        self._database, self._audits = database, audits

    @property
    def threshold(self) -> float | None:
        """The least factuality, in [0, 1], with which a card is used unnamed; None, at first: any."""
        with self._database.read() as connection:
            found = connection.scalar(select(settings.c.value).where(settings.c.name == THRESHOLD))
        try:
            return None if found is None else checked_share(float(found))
        except ValueError:
            raise HubError(
                f"the hub's threshold is {found!r}, not a number: set it again (kcard hub threshold 0.5, or off)"
            ) from None

    def set(self, threshold: float | None, *, by: str | None = None) -> None:
        """Change the threshold for every process that opens this hub; UsageError for one outside [0, 1].

        `by`: the account that changes it, for the log; None: the command line.
        """
        if threshold is not None:
            checked_share(threshold)
        with self._database.write() as connection:
            connection.execute(delete(settings).where(settings.c.name == THRESHOLD))
            reach("rows.setting")
            if threshold is not None:
                connection.execute(insert(settings).values(name=THRESHOLD, value=f"{threshold:g}"))
            write(connection, by, "quarantine.set", "hub", threshold=threshold)

    def held(self, versions: Sequence[Version]) -> dict[str, float]:
        """Those of the versions that are quarantined, by reference, with their factuality."""
        threshold = self.threshold
        if threshold is None or not versions:
            return {}
        audited = self._audits.factuality(versions)
        found = {v.reference: audited.get(v.reference, v.factuality) for v in versions}
        return {
            reference: score for reference, score in found.items() if score is not None and score < threshold
        }
