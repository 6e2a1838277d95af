"""The hub's metadata, and tables of pools and settings. Changes need a migration and a new HEAD (docs/hub.md).

Column types and constraints must work in both SQLite and PostgreSQL.
"""

from sqlalchemy import Column, ForeignKey, Integer, MetaData, String, Table, Text

__all__ = ["HEAD", "members", "metadata", "pools", "settings"]

HEAD = "0102"

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


# Cards outside of the hub's own namespace are called namespace/name.
CARD_NAME = String(96).with_variant(String(200), "postgresql")


pools = Table(
    "pools",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(96), nullable=False, unique=True),
)

# A card is in a pool once. `reference` may outlive the card.
members = Table(
    "members",
    metadata,
    Column("pool_id", Integer, ForeignKey("pools.id", ondelete="CASCADE"), primary_key=True),
    Column("card", CARD_NAME, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("reference", String(200), nullable=False),
)

# Settings of this hub, for every process.
settings = Table(
    "settings",
    metadata,
    Column("name", String(96), primary_key=True),
    Column("value", Text, nullable=False),
)
