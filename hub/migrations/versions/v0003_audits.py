"""Audits of versions, and the settings of the hub."""

import sqlalchemy as sa
from alembic import op

from kcard.hub.migrations.columns import owner

__all__ = ["upgrade"]

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "audits",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("version_id", "versions.id", index=True),
        sa.Column("taken", sa.DateTime(timezone=True), nullable=False),
        sa.Column("checker", sa.Text(), nullable=False),
        sa.Column("checker_sha256", sa.String(64)),
        sa.Column("evidence", sa.Text()),
        sa.Column("evidence_sha256", sa.String(64)),
        sa.Column("queries", sa.Text(), nullable=False),
        sa.Column("queries_sha256", sa.String(64), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("faithfulness", sa.Float()),
        sa.Column("factuality", sa.Float()),
        sa.Column("record", sa.Text(), nullable=False),
    )
    op.create_table(
        "settings",
        sa.Column("name", sa.String(96), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
