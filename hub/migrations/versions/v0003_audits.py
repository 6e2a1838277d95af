"""Audits of versions, and the settings of the hub."""

import sqlalchemy as sa
from alembic import op

__all__ = ["downgrade", "upgrade"]

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "audits",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version_id", sa.Integer(), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name="pk_audits"),
        sa.ForeignKeyConstraint(
            ["version_id"], ["versions.id"], name="fk_audits_version_id", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_audits_version_id", "audits", ["version_id"])
    op.create_table(
        "settings",
        sa.Column("name", sa.String(96), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_settings"),
    )


def downgrade() -> None:
    for table in ("settings", "audits"):
        op.drop_table(table)
