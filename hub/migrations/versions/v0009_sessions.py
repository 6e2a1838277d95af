"""Sessions of browsers, descriptions of accounts, and notes of requests for access."""

import sqlalchemy as sa
from alembic import op

from kcard.hub.migrations.columns import owner

__all__ = ["upgrade"]

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Integer(), primary_key=True),
        owner("token_id", "tokens.id", index=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("opened", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used", sa.DateTime(timezone=True), nullable=False),
    )
    op.add_column("accounts", sa.Column("description", sa.Text(), nullable=False, server_default=""))
    op.add_column("access", sa.Column("note", sa.Text(), nullable=False, server_default=""))
