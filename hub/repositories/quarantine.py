"""Quarantine: cards below the hub's factuality threshold are visible, but used only if named.

The latest audit of the version that measured factuality, against independent evidence that covers enough of what the
card wrote, decides, unless an administrator released the version since. Without one, the card's own exam decides: it
can quarantine the card but never release it. Unmeasured cards are not quarantined, and neither are cards of whose
documents the evidence covers less than the hub's floor: missing evidence is not falsehood.
"""

from collections.abc import Sequence

from sqlalchemy import delete, insert, update

from kcard.errors import UnknownCard
from kcard.hub.accounts.events import write
from kcard.hub.records.database import Database
from kcard.hub.records.repository_tables import audits, versions
from kcard.hub.records.tables import settings
from kcard.hub.records.utc import now
from kcard.hub.refusals import Invalid
from kcard.hub.repositories import version_rows
from kcard.hub.repositories.exams import checked_share
from kcard.hub.repositories.figures import Reason, quarantine_reason
from kcard.hub.repositories.limits import COVERAGE, THRESHOLD, coverage_floor, threshold
from kcard.hub.repositories.versions import Version

__all__ = ["Quarantine"]


class Quarantine:
    """The threshold of a hub, and the versions below it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def threshold(self) -> float | None:
        """The minimum factuality, in [0, 1], of cards that are used without being named; None (default): no minimum."""
        with self._database.read() as connection:
            return threshold(connection)

    @property
    def coverage(self) -> float:
        """The share of a card's documents that evidence must cover to quarantine it, in [0, 1]; 0.5 by default."""
        with self._database.read() as connection:
            return coverage_floor(connection)

    def set_coverage(self, floor: float, *, by: str | None = None) -> None:
        """Set the floor of coverage. Raises UsageError for one outside [0, 1]."""
        checked_share(floor, "coverage", "")
        with self._database.write() as connection:
            connection.execute(delete(settings).where(settings.c.name == COVERAGE))
            connection.execute(insert(settings).values(name=COVERAGE, value=f"{floor:g}"))
            write(connection, by, "quarantine.set", "hub", coverage=floor)

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

    def release(self, version: Version, *, by: str | None = None) -> None:
        """Release a version from the quarantine of its latest audit. A later audit is judged by itself.

        Raises UnknownCard if the version was removed, Invalid if no audit quarantines it.
        """
        with self._database.write() as connection:
            row = version_rows.key(connection, version)
            if row is None:
                raise UnknownCard(f"{version.reference} was removed by another process")
            [current] = version_rows.find(connection, versions.c.id == row.id)
            limit, floor = threshold(connection), coverage_floor(connection)
            reason = quarantine_reason(current.declared, current.verified, limit, floor)
            if reason is None:
                raise Invalid(f"{version.reference} is not quarantined")
            if reason.audit is None:
                raise Invalid(
                    f"{version.reference} is quarantined by its own exam, not by an audit of this hub: publish a "
                    "version with a new exam, or audit it (`kcard audit`)"
                )
            connection.execute(update(audits).where(audits.c.id == reason.audit).values(released=now()))
            write(connection, by, "card.released", version.reference, audit=reason.audit)

    def held(self, candidates: Sequence[Version]) -> dict[str, Reason]:
        """Why versions are quarantined, by reference; others are omitted. The figures are those of the values."""
        if not candidates:
            return {}
        limit, floor = self.threshold, self.coverage
        found = {v.reference: quarantine_reason(v.declared, v.verified, limit, floor) for v in candidates}
        return {reference: reason for reference, reason in found.items() if reason is not None}
