"""Tables of what the hub knows of uploads besides their bytes: verdicts of checks, and reservations."""

from sqlalchemy import BigInteger, Column, DateTime, ForeignKey, Integer, String, Table, Text

from kcard.hub.records.tables import metadata

__all__ = ["reservations", "verdicts"]

# Results of content checks, by content and the form that its path requires. `rules`: the version of the checks.
verdicts = Table(
    "verdicts",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("form", String(16), primary_key=True),
    Column("rules", Integer, nullable=False),
    Column("refusal", String(16), nullable=False),
    Column("reason", Text, nullable=False),
)

# Bytes that a namespace's quota is charged for uploads in progress, until `expires`. A part of a file is kept until
# the file is complete: `upload` names its folder, and `expires` is null.
reservations = Table(
    "reservations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column(
        "namespace_id", Integer, ForeignKey("accounts.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    Column("size", BigInteger, nullable=False),
    Column("expires", DateTime(timezone=True)),
    Column("upload", String(100), index=True),
    Column("number", Integer),
)
