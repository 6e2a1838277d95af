"""Tables of evaluation runs."""

from sqlalchemy import Boolean, Column, DateTime, ForeignKey, Integer, LargeBinary, Table, Text

from kcard.hub.records.tables import metadata

__all__ = ["run_results", "runs"]

# Numbers of deleted runs are not used again, because reports and manifests name them.
runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("started", DateTime(timezone=True), nullable=False),
    Column("planned", Integer, nullable=False),
    Column("plan", Text, nullable=False),
    sqlite_autoincrement=True,
)

# `record`: JSON, compressed with zlib.
run_results = Table(
    "run_results",
    metadata,
    Column("run_id", Integer, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("failed", Boolean, nullable=False),
    Column("record", LargeBinary, nullable=False),
)
