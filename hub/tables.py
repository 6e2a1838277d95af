"""The hub's tables. A change here needs a migration, and HEAD to name it.

Column types and constraints are those that SQLite and PostgreSQL share.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "HEAD",
    "aliases",
    "audits",
    "cards",
    "files",
    "members",
    "metadata",
    "pools",
    "settings",
    "versions",
]

HEAD = "0004"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


# A card of a shared hub is namespace/name.
CARD_NAME = String(96).with_variant(String(200), "postgresql")


def _within(table: str) -> ForeignKey:
    return ForeignKey(f"{table}.id", ondelete="CASCADE")


# `newest` is the highest number ever given, so that a removed version's number does not come back.
cards = Table(
    "cards",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", CARD_NAME, nullable=False, unique=True),
    Column("newest", Integer, nullable=False),
)

versions = Table(
    "versions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("card_id", Integer, _within("cards"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("manifest", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("domain", Text, nullable=False, index=True),
    Column("base", Text, nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("published", DateTime(timezone=True), nullable=False),
    UniqueConstraint("card_id", "number"),
    UniqueConstraint("card_id", "sha256"),
)

files = Table(
    "files",
    metadata,
    Column("version_id", Integer, _within("versions"), primary_key=True),
    Column("path", Text, primary_key=True),
    Column("sha256", String(64), nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
)

aliases = Table(
    "aliases",
    metadata,
    Column("card_id", Integer, _within("cards"), primary_key=True),
    Column("alias", String(96), primary_key=True),
    Column("version_id", Integer, _within("versions"), nullable=False, index=True),
)

pools = Table(
    "pools",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(96), nullable=False, unique=True),
)

# A card is in a pool once. `reference` may outlive the card: a pool says what it misses.
members = Table(
    "members",
    metadata,
    Column("pool_id", Integer, _within("pools"), primary_key=True),
    Column("card", CARD_NAME, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("reference", String(200), nullable=False),
)

# What a version was found to be worth, each time it was asked. The columns are what the hub itself reads and
# sorts by; `record` is the whole finding as JSON, which the hub passes on unread.
audits = Table(
    "audits",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("version_id", Integer, _within("versions"), nullable=False, index=True),
    Column("taken", DateTime(timezone=True), nullable=False),
    Column("checker", Text, nullable=False),
    Column("checker_sha256", String(64)),
    Column("evidence", Text),
    Column("evidence_sha256", String(64)),
    Column("queries", Text, nullable=False),
    Column("queries_sha256", String(64), nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("faithfulness", Float),
    Column("factuality", Float),
    Column("record", Text, nullable=False),
)

# What holds for this hub, whoever opens it.
settings = Table(
    "settings",
    metadata,
    Column("name", String(96), primary_key=True),
    Column("value", Text, nullable=False),
)
