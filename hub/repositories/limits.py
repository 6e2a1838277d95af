"""The limits by which a hub quarantines cards, as they are stored: least factuality and least coverage."""

from sqlalchemy import Connection, select

from kcard.errors import HubError
from kcard.hub.records.tables import settings
from kcard.hub.repositories.exams import checked_share
from kcard.hub.repositories.figures import FLOOR

__all__ = ["COVERAGE", "THRESHOLD", "coverage_floor", "threshold"]

THRESHOLD, COVERAGE = "threshold", "coverage"


def threshold(connection: Connection) -> float | None:
    """The least factuality; None if the hub has none. Raises HubError for an invalid one."""
    return _share(connection, THRESHOLD, "kcard hub threshold 0.5` (or off)")


def coverage_floor(connection: Connection) -> float:
    """The share of a card's documents that evidence must cover to quarantine it. Raises HubError for an invalid one."""
    share = _share(connection, COVERAGE, f"kcard hub threshold --coverage {FLOOR:g}`")
    return FLOOR if share is None else share


def _share(connection: Connection, name: str, remedy: str) -> float | None:
    found = connection.scalar(select(settings.c.value).where(settings.c.name == name))
    try:
        return None if found is None else checked_share(float(found))
    except ValueError:
        raise HubError(f"invalid {name} {found!r} in the hub: set it again with `{remedy}") from None
