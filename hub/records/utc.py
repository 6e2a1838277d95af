"""Times in UTC."""

from datetime import UTC, datetime

__all__ = ["now", "utc"]


def now() -> datetime:
    """The current time."""
    return datetime.now(UTC)


def utc(time: datetime) -> datetime:
    """A time from the database, where SQLite drops the time zone."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
