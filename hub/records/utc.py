"""Times as the hub keeps them: in UTC."""

from datetime import UTC, datetime

__all__ = ["now", "utc"]


def now() -> datetime:
    """This moment."""
    return datetime.now(UTC)


def utc(time: datetime) -> datetime:
    """A time out of the database: SQLite gives it back without its zone, PostgreSQL in the session's."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
