"""Pools: named sets of card references."""

import sqlalchemy as sa
from alembic import op

from kcard.hub.migrations.columns import owner

__all__ = ["upgrade"]

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "pools",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(96), nullable=False, unique=True),
    )
    op.create_table(
        "members",
        owner("pool_id", "pools.id", primary_key=True),
        sa.Column("card", sa.String(96), primary_key=True),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("reference", sa.String(200), nullable=False),
    )
