"""Pools: named sets of card references."""

import sqlalchemy as sa
from alembic import op

__all__ = ["downgrade", "upgrade"]

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "pools",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(96), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_pools"),
        sa.UniqueConstraint("name", name="uq_pools_name"),
    )
    op.create_table(
        "members",
        sa.Column("pool_id", sa.Integer(), nullable=False),
        sa.Column("card", sa.String(96), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("reference", sa.String(200), nullable=False),
        sa.PrimaryKeyConstraint("pool_id", "card", name="pk_members"),
        sa.ForeignKeyConstraint(["pool_id"], ["pools.id"], name="fk_members_pool_id", ondelete="CASCADE"),
    )


def downgrade() -> None:
    for table in ("members", "pools"):
        op.drop_table(table)
