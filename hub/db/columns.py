"""The base class of the rows of a hub, and the types of their columns.

They must work in both SQLite and PostgreSQL.
"""

import json
import zlib
from datetime import UTC, datetime
from typing import Annotated, Any

from sqlalchemy import (
    BigInteger,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
    inspect,
)
from sqlalchemy.orm import DeclarativeBase, mapped_column


def utc(time: datetime) -> datetime:
    """Return a time in UTC; one without a time zone is in UTC already."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


class UtcTime(TypeDecorator[datetime]):
    """A time in UTC; SQLite drops the time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else utc(value)


class JsonText(TypeDecorator[Any]):
    """A value as the text of its JSON; lists are read as tuples."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else json.dumps(value, default=str, ensure_ascii=False)

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ARG002
        content = None if value is None else json.loads(value)
        return tuple(content) if isinstance(content, list) else content


class CompressedText(TypeDecorator[str]):
    """A text, compressed with zlib."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        return None if value is None else zlib.compress(value.encode())

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        return None if value is None else zlib.decompress(value).decode()


class Row(DeclarativeBase):
    """A row. Rows are read-only outside of the transaction that loads them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: Text, float: Float, datetime: UtcTime}  # noqa: RUF012

    def copy(self, **changed: Any) -> Any:
        """Return a copy of the row, outside of any transaction, with changed values."""
        return type(self)(**{**self._values(), **changed})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return False
        mine, theirs = (
            self._values(),
            other._values(),
        )  # one of them may have been loaded without large columns
        return all(mine[name] == theirs[name] for name in mine.keys() & theirs.keys())

    def __hash__(self) -> int:
        return hash(type(self))

    def _values(self) -> dict[str, Any]:
        """Return the values of its columns, as far as they were loaded."""
        names = inspect(type(self)).columns.keys()
        return {name: value for name, value in vars(self).items() if name in names}


Id = Annotated[int, mapped_column(primary_key=True)]
Big = Annotated[int, mapped_column(BigInteger)]
Sha = Annotated[str, mapped_column(String(40))]
Digest = Annotated[str, mapped_column(String(64))]
Name = Annotated[str, mapped_column(String(96))]
# Foreign keys with cascading deletes; a ...Key is part of the primary key.
RepositoryId = Annotated[int, mapped_column(ForeignKey("repositories.id", ondelete="CASCADE"))]
RepositoryKey = Annotated[
    int, mapped_column(ForeignKey("repositories.id", ondelete="CASCADE"), primary_key=True)
]
AccountId = Annotated[int, mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"))]
AccountKey = Annotated[int, mapped_column(ForeignKey("accounts.id", ondelete="CASCADE"), primary_key=True)]
VersionId = Annotated[int, mapped_column(ForeignKey("versions.id", ondelete="CASCADE"), index=True)]
