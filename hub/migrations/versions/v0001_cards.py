"""The first tables: cards, versions, files, aliases."""

import sqlalchemy as sa
from alembic import op

from kcard.hub.migrations.columns import owner

__all__ = ["upgrade"]

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "cards",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("name", sa.String(96), nullable=False, unique=True),
        sa.Column("newest", sa.Integer(), nullable=False),
    )
    op.create_table(
        "versions",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("card_id", "cards.id"),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("domain", sa.Text(), nullable=False, index=True),
        sa.Column("base", sa.Text(), nullable=False, index=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("published", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("card_id", "number"),
        sa.UniqueConstraint("card_id", "sha256"),
    )
    op.create_table(
        "files",
        owner("version_id", "versions.id", primary_key=True),
        sa.Column("path", sa.Text(), primary_key=True),
        sa.Column("sha256", sa.String(64), nullable=False, index=True),
        sa.Column("size", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "aliases",
        owner("card_id", "cards.id", primary_key=True),
        sa.Column("alias", sa.String(96), primary_key=True),
        owner("version_id", "versions.id", index=True),
    )
