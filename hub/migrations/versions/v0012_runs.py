"""Evaluation runs and their results."""

import sqlalchemy as sa
from alembic import op

from kcard.errors import HubError

__all__ = ["downgrade", "upgrade"]

revision = "0012"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("started", sa.DateTime(timezone=True), nullable=False),
        sa.Column("planned", sa.Integer(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "run_results",
        sa.Column("run_id", sa.Integer(), sa.ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer(), primary_key=True),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
    )


def downgrade() -> None:
    raise HubError("downgrades are not supported: restore an older backup")
